"""Shows the input of a call so that a person can rely on it: whole, one-to-one, and not to be mistaken for our own
words. Every line has a mark at its left edge, lines too wide for the screen are wrapped with another mark, so nothing
in the input can draw a line that looks like ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.cells import chop_cells
from rich.text import Text

from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import exact, lookalikes
from sandbox_agent.types import JsonObject

WHOLE_LINES = 40
"""Longer inputs show head and tail first."""
PART_LINES = 15

_LEADING_KEYS = ("command", "file_path", "notebook_path", "path", "pattern", "url")
"""Shown first, and checked for letters that look like others; file contents may be in any language."""


@dataclass(frozen=True, slots=True)
class ExactView:
    """An input as lines for the screen. `size` says how much there is, `warnings` what a person could overlook."""

    lines: tuple[Text, ...]
    size: str
    warnings: tuple[str, ...]

    @property
    def long(self) -> bool:
        """Whether it does not fit and has to be looked at on purpose."""
        return len(self.lines) > WHOLE_LINES

    def head_and_tail(self) -> tuple[Text, ...]:
        """The first and the last lines, and between them how many are missing."""
        missing = len(self.lines) - 2 * PART_LINES
        mark = Text(f"  ... {words.count(missing, 'line')} not shown ...", style="bold yellow")
        return (*self.lines[:PART_LINES], mark, *self.lines[-PART_LINES:])


def view(given: JsonObject, *, width: int) -> ExactView:
    """The input of a call for a screen of that many columns."""
    keys = sorted(given, key=lambda key: _LEADING_KEYS.index(key) if key in _LEADING_KEYS else len(_LEADING_KEYS))
    lines: list[Text] = []
    escaped = total = 0
    for key in keys:
        value = given[key]
        plain = value if isinstance(value, str) else json.dumps(value)
        shown = exact(plain, newlines=True)
        escaped += shown.escaped
        total += len(plain)
        if key != "command":
            lines.append(Text(f"  {exact(key).text} ({words.count(len(plain), 'character')}):", style="dim"))
        for line in shown.text.split("\n"):
            lines.extend(marked(line, width))
    return ExactView(tuple(lines), words.count(total, "character"), tuple(_warnings(given, escaped)))


def marked(line: str, width: int) -> list[Text]:
    """One safe line for a screen of `width` columns, each piece behind a mark: "|", and ":" where it was wrapped."""
    pieces = chop_cells(line, max(width - 6, 20)) or [""]
    return [
        Text.assemble(("  | " if number == 0 else "  : ", "bold cyan"), piece) for number, piece in enumerate(pieces)
    ]


def _warnings(given: JsonObject, escaped: int) -> list[str]:
    warnings = []
    if escaped:
        warnings.append(
            f"{words.count(escaped, 'character')} that a terminal hides or obeys: shown as escapes, "
            "and every backslash of the text itself is doubled"
        )
    names = lookalikes("".join(str(given[key]) for key in _LEADING_KEYS if key in given))
    if names:
        warnings.append(f"letters that can look like others: {', '.join(names)}")
    return warnings
