"""What the person's own checks say of a run's result, after the agent has stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event
from sandbox_agent.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStarted(Event):
    """A check begins: `number`, from 1, of `count`."""

    type: ClassVar[str] = "check_started"
    number: int
    count: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinished(Event):
    """An acceptance check came to its end, in a container of its own on the resulting tree.

    `number` counts from 1. `exit_code` is None where the check could not be run, and `error` says why. `output` is the
    end of what it said (stdout and stderr in write order), `output_bytes` the size of all of it. `step` is the
    checkpoint whose tree it ran on; `from_base` are the paths that were taken from the folder as it was before the run,
    the first 1,000 of them.
    """

    type: ClassVar[str] = "check_finished"
    number: int
    command: str
    exit_code: int | None
    duration_s: float
    output: str = ""
    output_bytes: int = 0
    timed_out: bool = False
    error: str | None = None
    step: int | None = None
    from_base: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ended with 0, in time."""
        return self.exit_code == 0 and not self.timed_out and self.error is None

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        if self.passed:
            return "passed"
        if self.error is not None:
            return f"could not be run: {self.error}"
        return "ran out of time" if self.timed_out else f"failed with exit code {self.exit_code}"

    def as_json(self) -> JsonObject:
        """For reports."""
        return {
            "command": self.command,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "duration_s": self.duration_s,
            "timed_out": self.timed_out,
            "error": self.error,
            "output": self.output,
            "output_bytes": self.output_bytes,
            "from_base": list(self.from_base),
        }
