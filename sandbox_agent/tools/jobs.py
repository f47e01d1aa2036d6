"""What runs on after the call that started it, as tools see it: a job, its output by offset, and who has them.

A job is a command in the container or another agent. It ends exactly once. The engine has the registry
(`engine.jobs`); a tool gets at its own agent's jobs by `ToolContext.jobs` alone.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio


class JobKind(enum.StrEnum):
    """What a job is."""

    SHELL = "shell"
    AGENT = "agent"


class JobState(enum.StrEnum):
    """How it is with a job; all but `RUNNING` are final.

    `EXITED`: by itself, with `exit_code` where it is a command. `TIMED_OUT`: at its own limit. `KILLED`: stopped by
    TaskStop, an undo or the disk limit. `FAILED`: what it ran on failed. `CLOSED`: the session ended first.
    """

    RUNNING = "running"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class JobOutput:
    """A piece of a job's output. `offset` is where `data` begins, `size_bytes` how much there is so far in all."""

    data: bytes
    offset: int
    size_bytes: int


async def _no_output(_: int, __: int) -> JobOutput:
    return JobOutput(b"", 0, 0)


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One job. Only the registry changes it.

    `what` is one line for people and the model, `agent_id` its owner, `call_id` the call that started it. `read(offset,
    limit_bytes)` gives its output, `output_path` is the file in the container that has it. `limit_s` is its own limit.
    `note` says why it ended that way, `tail` is what the model is shown of the end: last lines, or an agent's answer.
    `output_bytes` is what a command printed in all, once that is known, `file_bytes` how much of it its file has.
    """

    id: str
    kind: JobKind
    what: str
    agent_id: str
    call_id: str
    read: Callable[[int, int], Awaitable[JobOutput]] = _no_output
    output_path: str | None = None
    limit_s: float | None = None
    state: JobState = JobState.RUNNING
    exit_code: int | None = None
    note: str = ""
    tail: str = ""
    output_bytes: int | None = None
    file_bytes: int | None = None
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ends_as: tuple[JobState, str] = (JobState.CLOSED, "")
    watchers: int = 0
    tell: Callable[[], None] = lambda: None
    take_back: Callable[[], None] = lambda: None

    @property
    def running(self) -> bool:
        return self.state is JobState.RUNNING

    @property
    def duration_s(self) -> float:
        """So far, or in all."""
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.started_s

    def where(self) -> str:
        """Where its output is, in a sentence; "" where it is in no file."""
        if self.output_path is None:
            return ""
        if self.output_bytes is None:
            return f"What it printed is in {self.output_path}."
        if self.file_bytes == self.output_bytes:
            return f"Its whole output is in {self.output_path}."
        return f"It printed {self.output_bytes:,} bytes; {self.output_path} had room for {self.file_bytes:,} of them."

    def ended_words(self) -> str:
        """How it ended, in a few words."""
        words = {
            JobState.RUNNING: "is still running",
            JobState.EXITED: "ended" if self.exit_code is None else f"ended with exit code {self.exit_code}",
            JobState.TIMED_OUT: f"was killed at its limit of {self.limit_s or 0:g} s",
            JobState.KILLED: "was stopped",
            JobState.FAILED: "failed",
            JobState.CLOSED: "was ended",
        }[self.state]
        return f"{words} ({self.note})" if self.note else words

    async def stop(self, note: str = "", state: JobState = JobState.KILLED) -> None:
        """End it with everything it started, and wait until it has ended. No more than that for one that has, or that
        somebody else is stopping."""
        if self.running and not self.scope.cancel_called:
            self.ends_as = (state, note)
            self.scope.cancel()
        await self.done.wait()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Who is in here tells the model how the job ended if it has by the end, so that nobody else needs to; unless
        an exception leaves."""
        ended_before = not self.running
        self.watchers += 1
        try:
            yield
        except BaseException:
            self.watchers -= 1
            if not self.running and not ended_before and not self.watchers:
                self.tell()
            raise
        self.watchers -= 1
        if not self.running:
            self.take_back()


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command to be run as a job, and `what` it is for people. Its output goes to `output_path`, a new file."""

    what: str
    argv: Sequence[str]
    cwd: str
    limit_s: float
    output_path: str


class JobDesk(Protocol):
    """The jobs of one agent."""

    def start_shell(self, command: ShellCommand) -> Job:
        """Start a command, for the call that the current task runs.

        Raises:
            ToolError: too many jobs run, or the session is ending.
        """
        ...

    def get(self, job_id: str) -> Job:
        """A job of this agent, running or ended.

        Raises:
            ToolError: there is none of that id; the text names those there are.
        """
        ...
