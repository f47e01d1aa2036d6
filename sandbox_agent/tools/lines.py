"""Lines of a file as bytes: numbered for the model, or found by number, without decoding more than is shown."""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"

MAX_LINE_CHARS = 2000
"""A longer line is cut here, with a mark."""


class Page(NamedTuple):
    """Numbered lines. `shown` counts them, `clipped` are the numbers of those cut, `full` tells that chars ran out."""

    text: str
    shown: int
    clipped: tuple[int, ...]
    replaced: bool
    full: bool


def count_lines(data: bytes) -> int:
    """Lines as people count them: a last one without a line end counts, nothing after a last line end does not."""
    return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)


def lines_worded(number: int) -> str:
    """ "1 line", "2,000 lines"."""
    return "1 line" if number == 1 else f"{number:,} lines"


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 file", "2,000 files"; `plural` where it is not the noun and an s."""
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def line_start(data: bytes, number: int) -> int:
    """Where line `number` (from 1) begins; the length of `data` if there is none."""
    position = 0
    for _ in range(number - 1):
        position = data.find(b"\n", position) + 1
        if position == 0:
            return len(data)
    return position


def line_number(data: bytes, position: int) -> int:
    """The number (from 1) of the line that holds `position`."""
    return data.count(b"\n", 0, position) + 1


def decode_line(raw: bytes) -> str:
    """One line without its line end (LF or CRLF); what is not UTF-8 becomes U+FFFD."""
    return raw.removesuffix(b"\r").decode("utf-8", "replace")


def number_page(data: bytes, *, first: int, limit: int, max_chars: int) -> Page:
    """Up to `limit` lines of `data` as `N<TAB>text`, numbered from `first`, as long as they fit into `max_chars`."""
    out: list[str] = []
    clipped: list[int] = []
    used = position = 0
    replaced = full = False
    while position < len(data) and len(out) < limit:
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        raw = data[position:end]
        text, cut = _clip(raw)
        line = f"{first + len(out)}\t{text}"
        used += len(line) + 1
        if used > max_chars and out:
            full = True
            break
        replaced = replaced or not _is_utf8(raw)
        if cut:
            clipped.append(first + len(out))
        out.append(line)
        position = end + 1
    return Page("\n".join(out), len(out), tuple(clipped), replaced, full)


def _clip(raw: bytes) -> tuple[str, bool]:
    """A line's text, cut with a mark; a line of megabytes is decoded only as far as it is shown."""
    text = decode_line(raw[: MAX_LINE_CHARS * 4 + 4] if len(raw) > MAX_LINE_CHARS * 4 + 4 else raw)
    if len(text) <= MAX_LINE_CHARS:
        return text, False
    return f"{text[:MAX_LINE_CHARS]} [... line cut: {len(raw):,} bytes in all]", True


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
