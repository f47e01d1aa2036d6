"""Unified diffs with git's headers, made from bytes in hand, in bounded time whatever the bytes are."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

CONTEXT_LINES = 3
MAX_FILE_BYTES = 256 * 1024
MAX_DIFF_CHARS = 4_000_000

MAX_PAIRS = 100_000
"""Pairs of equal lines that `difflib` may try in one file: beyond it takes minutes, so the whole middle is replaced."""

MAX_TOTAL_PAIRS = 3_000_000
"""The same for all files of a review."""

_Opcode = tuple[str, int, int, int, int]
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


class Side(NamedTuple):
    """One side of a diff: content and git's file mode text, such as "100644"."""

    data: bytes
    mode: str


@dataclass(slots=True)
class Budget:
    """What is left of the time and text that one review may spend on diffs."""

    pairs: int = MAX_TOTAL_PAIRS
    chars: int = MAX_DIFF_CHARS


def is_binary(data: bytes) -> bool:
    """As git decides: a NUL near the beginning."""
    return b"\0" in data[:8000]


def quote(path: str) -> str:
    """A path as git writes it in headers: in quotes with escapes when a character would break the line."""
    raw = path.encode("utf-8", "surrogateescape")
    if not any(byte < 32 or byte in (34, 92, 127) for byte in raw) and "\udc80" not in path and path.isprintable():
        return path
    escaped = "".join(_ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in raw)
    return f'"{escaped}"'


def unified(path: str, before: Side | None, after: Side | None, budget: Budget) -> str:
    """The diff of one text file; None stands for "not there". Bytes that are no UTF-8 show as U+FFFD."""
    old, new = quote(f"a/{path}"), quote(f"b/{path}")
    head = [f"diff --git {old} {new}"]
    if before is None and after is not None:
        head.append(f"new file mode {after.mode}")
    elif after is None and before is not None:
        head.append(f"deleted file mode {before.mode}")
    elif before is not None and after is not None and before.mode != after.mode:
        head += [f"old mode {before.mode}", f"new mode {after.mode}"]
    a, b = lines_of(before.data if before else b""), lines_of(after.data if after else b"")
    hunks = [line for group in _groups(_opcodes(a, b, budget)) for line in _hunk(group, a, b)]
    if hunks:
        head += [
            f"--- {old if before is not None else '/dev/null'}",
            f"+++ {new if after is not None else '/dev/null'}",
        ]
    text = "\n".join(head + hunks) + "\n"
    budget.chars -= len(text)
    return text


def lines_of(data: bytes) -> list[bytes]:
    """Lines with their newline; nothing but "\\n" ends one."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _shown(mark: str, line: bytes) -> str:
    """A line of a hunk, without a newline; a last line that lacks one is followed by git's remark."""
    text = mark + line.removesuffix(b"\n").decode("utf-8", "replace")
    return text if line.endswith(b"\n") else f"{text}\n\\ No newline at end of file"


def _opcodes(a: list[bytes], b: list[bytes], budget: Budget) -> list[_Opcode]:
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    tail = 0
    while tail < min(len(a), len(b)) - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a_end, b_end = len(a) - tail, len(b) - tail
    middle = _middle(a[start:a_end], b[start:b_end], budget)
    codes = [("equal", 0, start, 0, start)] if start else []
    codes += [(tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in middle]
    if tail:
        codes.append(("equal", a_end, len(a), b_end, len(b)))
    return codes


def _middle(a: list[bytes], b: list[bytes], budget: Budget) -> list[_Opcode]:
    if not a or not b:
        return [("delete" if a else "insert", 0, len(a), 0, len(b))] if a or b else []
    counts = Counter(b)
    # difflib itself leaves out lines that make up more than a hundredth of a long text.
    popular = len(b) // 100 + 1 if len(b) >= 200 else len(b)
    pairs = sum(counts[line] for line in a if counts[line] <= popular)
    if pairs > min(MAX_PAIRS, budget.pairs):
        return [("replace", 0, len(a), 0, len(b))]
    budget.pairs -= pairs
    return [(tag, i1, i2, j1, j2) for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b).get_opcodes()]


def _groups(codes: list[_Opcode]) -> Iterator[list[_Opcode]]:
    """Cut where more than two contexts are equal, and trim the equal ends."""
    group: list[_Opcode] = []
    last = len(codes) - 1
    for number, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        count = i2 - i1
        if number == 0:
            skip = max(0, count - CONTEXT_LINES)
            group = [(tag, i1 + skip, i2, j1 + skip, j2)]
        elif number == last or count > 2 * CONTEXT_LINES:
            keep = min(CONTEXT_LINES, count)
            yield [*group, (tag, i1, i1 + keep, j1, j1 + keep)]
            group = [] if number == last else [(tag, i2 - CONTEXT_LINES, i2, j2 - CONTEXT_LINES, j2)]
        else:
            group.append((tag, i1, i2, j1, j2))
    if any(tag != "equal" for tag, *_ in group):
        yield group


def _hunk(group: list[_Opcode], a: list[bytes], b: list[bytes]) -> Iterator[str]:
    (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
    yield f"@@ -{_span(a1, a2)} +{_span(b1, b2)} @@"
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from (_shown(" ", line) for line in a[i1:i2])
        else:
            yield from (_shown("-", line) for line in a[i1:i2])
            yield from (_shown("+", line) for line in b[j1:j2])


def _span(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start if count == 0 else start + 1},{count}"
