"""What runs on after the call that started it: a job begins, and ends exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(Event):
    """A job runs from now on. `kind` is "shell" or "agent", `what` one line about it, `call_id` the call that started
    it. `output_path` is the file in the container that has its output, `limit_s` its own limit; None where it has none.
    """

    type: ClassVar[str] = "job_started"
    job_id: str
    kind: str
    what: str
    call_id: str
    output_path: str | None = None
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """The one end of a job. `state` is "exited", "timed_out", "killed", "failed" or "closed" (the session ended first).

    `exit_code` is a command's, None where it is not known; `note` says why where that is not plain; `output_bytes` is
    what it printed in all, `output_path` the file in the container that has it.
    """

    type: ClassVar[str] = "job_finished"
    job_id: str
    kind: str
    what: str
    call_id: str
    state: str
    exit_code: int | None
    duration_s: float
    note: str = ""
    output_bytes: int | None = None
    output_path: str | None = None
