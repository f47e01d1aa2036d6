"""The first difference between a run and its replay, with both sides."""

from __future__ import annotations

import difflib

from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.types import JsonObject

SHOWN_LINES = 40
LINE_CHARS = 300
SIDE_CHARS = 20_000


def difference_lines(fault: ReplayMismatchError) -> list[str]:
    """Where the two sides part, line by line; [] where there are no two sides."""
    if fault.recorded is None or fault.replayed is None:
        return []
    sides = fault.recorded.splitlines(), fault.replayed.splitlines()
    found = [line.rstrip("\n") for line in difflib.unified_diff(*sides, "recorded", "replayed", n=2, lineterm="")]
    shown = [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} ..." for line in found[:SHOWN_LINES]]
    more = len(found) - len(shown)
    return [*shown, f"... {more} more lines (--json has both sides)"] if more > 0 else shown


def difference_as_json(fault: ReplayMismatchError) -> JsonObject:
    """The same for a program."""
    return {
        "error": str(fault),
        "step": fault.step,
        "agent": fault.agent,
        "what": fault.what,
        "recorded": None if fault.recorded is None else fault.recorded[:SIDE_CHARS],
        "replayed": None if fault.replayed is None else fault.replayed[:SIDE_CHARS],
        "diff": difference_lines(fault),
    }
