"""The order of the permission modes, from the strictest to the loosest."""

from __future__ import annotations

from typing import assert_never

from sandbox_agent.types import Mode


def looseness(mode: Mode) -> int:
    """A rank: what a mode does without asking, every looser one does as well."""
    match mode:
        case Mode.PLAN:
            return 0
        case Mode.DONT_ASK:
            return 1
        case Mode.DEFAULT:
            return 2
        case Mode.ACCEPT_EDITS:
            return 3
        case Mode.BYPASS:
            return 4
        case _:
            assert_never(mode)


def stricter(mode: Mode, loosest: Mode | None) -> Mode:
    """The mode, or the loosest one there may be; None allows every mode."""
    return mode if loosest is None or looseness(mode) <= looseness(loosest) else loosest
