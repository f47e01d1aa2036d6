"""The hunks of a diff as ranges of lines: read from the text that was shown, split, and applied one by one.

A choice is a set of ranges, so what it means does not depend on how the diff would be made a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sandbox_agent.workspaces.textdiff import lines_of

_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Span(NamedTuple):
    """Lines `old_start` to `old_end` (counted from 0, the end not included) give way to the new ones."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk as shown: `rows` are its lines with their marks, `span` what they stand for."""

    span: Span
    rows: tuple[str, ...]

    @property
    def head(self) -> str:
        old, new = self.span.old_end - self.span.old_start, self.span.new_end - self.span.new_start
        return f"@@ -{_range(self.span.old_start, old)} +{_range(self.span.new_start, new)} @@"

    @property
    def text(self) -> str:
        """As in a diff, without a newline at the end."""
        return "\n".join((self.head, *self.rows))


def hunks_of(diff: str) -> tuple[Hunk, ...]:
    """The hunks of one file's diff as `textdiff.unified` made it; none where only the mode differs."""
    found: list[Hunk] = []
    rows = diff.removesuffix("\n").split("\n")
    position = 0
    while position < len(rows):
        head = _HEAD.match(rows[position])
        position += 1
        if head is None:
            continue
        old, new = (int(count) if count is not None else 1 for count in (head[2], head[4]))
        old_start, new_start = int(head[1]) - (old > 0), int(head[3]) - (new > 0)
        span = Span(old_start, old_start + old, new_start, new_start + new)
        start = position
        while position < len(rows) and (old > 0 or new > 0 or rows[position].startswith("\\")):
            mark = rows[position][:1]
            old -= mark in " -"
            new -= mark in " +"
            position += 1
        found.append(Hunk(span, tuple(rows[start:position])))
    return tuple(found)


def split(hunk: Hunk) -> tuple[Hunk, ...]:
    """The parts that unchanged lines separate, each with the unchanged lines before it; itself if it has only one."""
    parts: list[Hunk] = []
    rows: list[str] = []
    old, new = hunk.span.old_start, hunk.span.new_start
    start = (old, new)
    changed = False
    for row in hunk.rows:
        mark = row[:1]
        if mark == " " and changed:
            parts.append(Hunk(Span(start[0], old, start[1], new), tuple(rows)))
            rows, start, changed = [], (old, new), False
        rows.append(row)
        old += mark in " -"
        new += mark in " +"
        changed = changed or mark in "+-"
    if changed or not parts:
        parts.append(Hunk(Span(start[0], old, start[1], new), tuple(rows)))
    else:  # unchanged lines at the end belong to the last part
        last = parts.pop()
        parts.append(Hunk(Span(last.span.old_start, old, last.span.new_start, new), last.rows + tuple(rows)))
    return tuple(parts)


def pick(before: bytes, after: bytes, spans: Iterable[Span]) -> bytes:
    """The text before with the chosen hunks, and no others, applied.

    Raises:
        ValueError: the ranges overlap, or are no lines of these texts.
    """
    old, new = lines_of(before), lines_of(after)
    out: list[bytes] = []
    position = 0
    for span in sorted(set(spans)):
        if not position <= span.old_start <= span.old_end <= len(old) or not span.new_start <= span.new_end <= len(new):
            raise ValueError(f"{span}: no hunk of this file")
        out += old[position : span.old_start] + new[span.new_start : span.new_end]
        position = span.old_end
    out += old[position:]
    # A line that ended its file without a newline may have others after it now.
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in out[:-1]) + b"".join(out[-1:])


def _range(start: int, count: int) -> str:
    if count == 1:
        return str(start + 1)
    return f"{start if count == 0 else start + 1},{count}"
