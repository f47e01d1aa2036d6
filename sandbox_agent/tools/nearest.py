"""What to tell the model when its old text is not in the file: the nearest lines, with white space made visible."""

from __future__ import annotations

import difflib

from sandbox_agent.tools.lines import BOM, decode_line

MAX_SHOWN_LINES = 8
_MAX_COMPARED_LINES = 10_000
"""By likeness; that is about 0.2 s of the engine's time at most. Equal but for white space is found anywhere."""
_MAX_LINE_CHARS = 300
_CUTOFF = 0.5
_VISIBLE = str.maketrans({"\t": "→", " ": "·", "\r": "␍", "\u00a0": "⍽", "\u200b": "<U+200B>", "\ufeff": "<U+FEFF>"})


def visible(line: str) -> str:
    """The line with tab as →, space as ·, CR as ␍, no-break space as ⍽."""
    if len(line) > _MAX_LINE_CHARS:
        line = line[:_MAX_LINE_CHARS] + "..."
    return line.translate(_VISIBLE)


def nearest_lines(data: bytes, old: str) -> str:
    """Lines of `data` that are most like `old`, beside what was looked for; "" if nothing is like it."""
    lines = [decode_line(raw) for raw in data.removeprefix(BOM).split(b"\n")]
    wanted = old.replace("\r\n", "\n").split("\n")
    anchor = _anchor(wanted)
    if anchor is None:
        return ""
    at = _most_like(lines, wanted[anchor])
    if at is None:
        return ""
    first = max(0, at - anchor)
    skipped = _first_difference(lines[first:], wanted)
    first, wanted = first + skipped, wanted[skipped : skipped + MAX_SHOWN_LINES]
    width = len(str(first + len(wanted)))
    there = enumerate(lines[first : first + len(wanted)], first + 1)
    return "\n".join(
        [
            "The nearest lines (→ is a tab, · a space, ␍ a CR):",
            *(f"  {number:>{width}} {visible(line)}" for number, line in there),
            "In their place old_string has:",
            *(f"  {'':>{width}} {visible(line)}" for line in wanted),
        ]
    )


def lines_near(data: bytes, old: str) -> str:
    """Numbered lines of `data` around where `old` most likely was; the first lines if nothing is like it."""
    lines = [decode_line(raw) for raw in data.removeprefix(BOM).split(b"\n")]
    wanted = old.replace("\r\n", "\n").split("\n")
    anchor = _anchor(wanted)
    at = _most_like(lines, wanted[anchor]) if anchor is not None else None
    first = max(0, (at or 0) - (anchor or 0) - 2)
    count = min(len(wanted) + 4, MAX_SHOWN_LINES * 2)
    return "\n".join(
        f"{first + index + 1}\t{line[:_MAX_LINE_CHARS]}" for index, line in enumerate(lines[first : first + count])
    )


def _first_difference(lines: list[str], wanted: list[str]) -> int:
    """How many lines of a long text need not be shown because they agree; one that agrees stays for orientation."""
    for index, (line, asked) in enumerate(zip(lines, wanted, strict=False)):
        if line != asked:
            return max(0, index - 1)
    return 0


def _anchor(wanted: list[str]) -> int | None:
    """The line of the old text to look for: the longest one tells most."""
    best = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    return best if wanted[best].strip() else None


def _most_like(lines: list[str], wanted: str) -> int | None:
    plain = " ".join(wanted.split())[:_MAX_LINE_CHARS]
    best: int | None = None
    best_ratio = _CUTOFF
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(plain)
    compared = 0
    for index, line in enumerate(lines):
        candidate = " ".join(line[: 2 * _MAX_LINE_CHARS].split())[:_MAX_LINE_CHARS]
        if candidate == plain:
            return index
        if compared >= _MAX_COMPARED_LINES or not candidate or best_ratio >= 1.0:
            continue
        if plain in candidate:
            best, best_ratio = index, 1.0
            continue
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() <= best_ratio:
            continue
        compared += 1
        if matcher.quick_ratio() > best_ratio and matcher.ratio() > best_ratio:
            best, best_ratio = index, matcher.ratio()
    return best
