"""Counting what the processes of one call came to, whichever tool starts them.

A tool has the sandbox and nothing of the call it is in, and several calls run at once: the call is found by the task
that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sandbox_agent.sandboxes.base import ExecResult


@dataclass(slots=True)
class Meter:
    """What one call's programs came to, together. `exit_code` is of the last one; None where none was run."""

    left_processes: int = 0
    exit_code: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    cpu_s: float | None = None
    max_rss_bytes: int | None = None

    def add(self, ended: ExecResult) -> None:
        """Count one program that has ended."""
        self.left_processes += ended.leftover_processes
        self.exit_code = ended.exit_code
        self.timed_out = self.timed_out or ended.timed_out
        self.oom_killed = self.oom_killed or ended.oom_killed
        if ended.cpu_s is not None:
            self.cpu_s = (self.cpu_s or 0.0) + ended.cpu_s
        if ended.max_rss_bytes is not None:
            self.max_rss_bytes = max(self.max_rss_bytes or 0, ended.max_rss_bytes)


_METER: ContextVar[Meter | None] = ContextVar("sandbox_agent_meter", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Whatever the current task, or one it starts, runs in the sandbox meanwhile counts for `meter`."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


def count(ended: ExecResult) -> None:
    """A program has ended; it is counted if it was a call's."""
    meter = _METER.get()
    if meter is not None:
        meter.add(ended)
