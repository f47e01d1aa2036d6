"""Unified diffs as coloured, sanitised text."""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.text import Text

from sandbox_agent.frontends.sanitise import sanitise

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_STYLES = {"+": "green", "-": "red", "\\": "dim"}


class DiffLine(NamedTuple):
    """One line of a unified diff and what it is: "+", "-", " ", "\\", "@" for a hunk's head, "h" for a file's."""

    kind: str
    text: str


def parse(diff: str) -> list[DiffLine]:
    """The lines of a unified diff. Hunk sizes are counted, so a removed line "-- x" is not taken for a head."""
    lines: list[DiffLine] = []
    old = new = 0
    for line in diff.removesuffix("\n").split("\n"):
        head = _HUNK.match(line)
        if old <= 0 and new <= 0 and head:
            old, new = (int(count) if count is not None else 1 for count in head.groups())
            lines.append(DiffLine("@", line))
        elif line.startswith("\\") or (old <= 0 and new <= 0):
            lines.append(DiffLine("\\" if line.startswith("\\") else "h", line))
        else:
            kind = line[:1] if line[:1] in ("+", "-") else " "
            old -= kind != "+"
            new -= kind != "-"
            lines.append(DiffLine(kind, line))
    return lines


def counts(diff: str) -> tuple[int, int]:
    """How many lines the diff adds and removes."""
    kinds = [line.kind for line in parse(diff)]
    return kinds.count("+"), kinds.count("-")


def render(diff: str, *, max_lines: int | None = None, indent: str = "", heads: bool = True) -> Text:
    """The diff for a terminal, without a newline at the end.

    Args:
        diff: unified diff text, as it came.
        max_lines: show at most so many, then say how many more there are. None shows all.
        indent: put before each line.
        heads: keep the "---" and "+++" lines.
    """
    lines = [line for line in parse(diff) if heads or line.kind != "h"]
    shown = lines if max_lines is None or len(lines) <= max_lines else lines[: max_lines - 1]
    out = Text()
    for number, line in enumerate(shown):
        style = {"@": "cyan", "h": "bold"}.get(line.kind) or _STYLES.get(line.kind, "")
        out.append("\n" * (number > 0) + indent)
        out.append(sanitise(line.text, tabs=True), style=style)
    if len(shown) < len(lines):
        out.append(f"\n{indent}... {len(lines) - len(shown)} more lines", style="dim")
    return out
