"""Plan mode as tools see it: an agent enters it by itself, and leaves it when a person has said yes to its plan."""

from __future__ import annotations

from typing import Protocol


class PlanDesk(Protocol):
    """The way in and out of plan mode, by `ToolContext.plan`."""

    @property
    def planning(self) -> bool:
        """Whether the agent is in plan mode now."""
        ...

    def enter(self) -> None:
        """From now on nothing may be changed."""
        ...

    def leave(self) -> str:
        """Back to the mode that was before, which is returned. Only after a person's yes: the gate asks for it."""
        ...
