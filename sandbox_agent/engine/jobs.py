"""The jobs of a session, commands and agents alike: each runs in the session's tasks and ends exactly once.

Whoever starts a job gives `Jobs.add` what it does, as a coroutine function that returns how it ended. Its end is one
`JobFinished` event and one message in its owner's queue, behind everything else (`later`), unless a tool call was
waiting for it and tells of it itself. The session awaits its jobs with `wait_change` (one ended) or `wait_idle` (all
did), ends those of one agent with `stop_all`, and everything with `close`, before anybody looks at what changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.errors import SandboxAgentError, ToolError
from sandbox_agent.events import Event, JobFinished, JobStarted
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.jobs import Job, JobKind, JobState

MOST_SHELLS = 16
"""Commands at once, of all agents together. Agents have limits of their own."""

MOST_KEPT = 200
"""Ended jobs that can still be asked for; the oldest are forgotten."""

_KINDS = {JobKind.SHELL: "command", JobKind.AGENT: "sub-agent"}
_MARK_BEGINS = re.compile(r"<(?=\s*/?\s*job-output)", re.IGNORECASE)

SESSION_ENDED = "the session ended"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended by itself. `tail` is what the model is shown of it: last lines, or an agent's whole answer."""

    state: JobState
    exit_code: int | None = None
    note: str = ""
    tail: str = ""
    output_bytes: int | None = None
    file_bytes: int | None = None


Work = Callable[[Job], Awaitable[Ending]]


class Jobs:
    """The registry of one session, for all its agents."""

    def __init__(self, emit: Callable[[Event], None], tasks: TaskGroup, *, most_shells: int = MOST_SHELLS) -> None:
        self._emit = emit
        self._tasks = tasks
        self._most_shells = most_shells
        self._jobs: dict[str, Job] = {}
        self._closed = False
        self._ended = anyio.Event()

    def add(self, job: Job, work: Work, queue: MessageQueue) -> Job:
        """Start a job.

        Args:
            job: a new one, with an id from `new_id` or `free_id`.
            work: does it. It is cancelled when the job is stopped or the session ends. A `SandboxAgentError` from it
                makes the job `FAILED` with that text; any other exception is a fault of ours and ends the session.
            queue: of its owner, which hears of its end.

        Raises:
            ToolError: too many commands run, or the session is ending.
        """
        if self._closed:
            raise ToolError(f"Not started: {SESSION_ENDED}, and no job outlives it.")
        if job.kind is JobKind.SHELL:
            self._check_room()
        earlier = self._jobs.get(job.id)
        if earlier is not None and earlier.running:
            raise ValueError(f"a job {job.id} runs already")
        self._jobs.pop(job.id, None)
        self._jobs[job.id] = job
        job.tell = partial(self._tell, job, queue)
        self._emit(
            JobStarted(
                agent_id=job.agent_id,
                job_id=job.id,
                kind=job.kind.value,
                what=job.what,
                call_id=job.call_id,
                output_path=job.output_path,
                limit_s=job.limit_s,
            )
        )
        self._tasks.start_soon(self._run, job, work)
        return job

    def free_id(self, wanted: str) -> str:
        """This id, with a number behind it while a job of that id runs. One that has ended gives its id to the next."""
        return self._numbered(wanted, lambda job_id: job_id in self._jobs and self._jobs[job_id].running)

    def new_id(self, prefix: str, call_id: str) -> str:
        """An id that no job of this session has, the same for the same call whenever it is played again."""
        plain = "".join(char for char in call_id.removeprefix("toolu_") if char.isascii() and char.isalnum())
        return self._numbered(f"{prefix}_{plain[-8:] or 'job'}", self._jobs.__contains__)

    def _numbered(self, wanted: str, taken: Callable[[str], bool]) -> str:
        found = (wanted, *(f"{wanted}_{number}" for number in range(2, len(self._jobs) + 3)))
        return next(name for name in found if not taken(name))

    def get(self, job_id: str, agent_id: str) -> Job | None:
        """A job by id, of that agent only; None if there is no such."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.agent_id == agent_id else None

    def of(self, agent_id: str) -> tuple[Job, ...]:
        """All jobs of an agent that are known, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.agent_id == agent_id)

    def running(self, agent_id: str | None = None) -> tuple[Job, ...]:
        """What runs now, of one agent or (None) of all, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.running and agent_id in (None, job.agent_id))

    async def wait_change(self, timeout_s: float | None, agent_id: str | None = None) -> bool:
        """Wait until one of the jobs that run now has ended, and its message is in the queue; at once if none runs.

        Returns:
            Whether one ended; False when none ran, or the time was up first.
        """
        watched = self.running(agent_id)
        if not watched:
            return False
        with anyio.move_on_after(timeout_s):
            while all(job.running for job in watched):
                await self._ended.wait()
        return any(not job.running for job in watched)

    async def wait_idle(self, timeout_s: float | None, agent_id: str | None = None) -> tuple[Job, ...]:
        """Wait until no job runs, those included that start meanwhile. Returns what still runs when the time is up."""
        with anyio.move_on_after(timeout_s):
            while self.running(agent_id):
                await self._ended.wait()
        return self.running(agent_id)

    async def stop_all(
        self, note: str, agent_id: str | None = None, *, state: JobState = JobState.KILLED
    ) -> tuple[Job, ...]:
        """End the jobs of one agent, or (None) all, and wait until they have. Others may be started afterwards.

        Args:
            note: why, in a few words, for the record and the model.
            agent_id: whose.
            state: what becomes of them.

        Returns:
            Those that ran.
        """
        stopped = self.running(agent_id)
        async with anyio.create_task_group() as group:
            for job in stopped:
                group.start_soon(job.stop, note, state)
        return stopped

    async def close(self) -> None:
        """End everything for good, as `CLOSED`. Shielded; bounded by the sandbox's own time for ending a call."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self.stop_all(SESSION_ENDED, state=JobState.CLOSED)

    def _check_room(self) -> None:
        shells = [job for job in self.running() if job.kind is JobKind.SHELL]
        if len(shells) >= self._most_shells:
            names = ", ".join(job.id for job in shells)
            raise ToolError(
                f"Not started: {len(shells)} commands run in the background already, and that is the most there may "
                f"be ({names}). Stop one with TaskStop, or wait for one with TaskOutput."
            )

    async def _run(self, job: Job, work: Work) -> None:
        ending = Ending(JobState.CLOSED, note=SESSION_ENDED)
        try:
            with job.scope:
                ending = await work(job)
            if job.scope.cancelled_caught:
                state, note = job.ends_as
                ending = Ending(state, note=note)
        except SandboxAgentError as exc:
            ending = Ending(JobState.FAILED, note=str(exc))
        finally:
            self._finish(job, ending)

    def _finish(self, job: Job, ending: Ending) -> None:
        job.state, job.exit_code = ending.state, ending.exit_code
        job.note, job.tail = ending.note, ending.tail
        job.output_bytes, job.file_bytes = ending.output_bytes, ending.file_bytes
        job.ended_s = time.monotonic()
        self._emit(
            JobFinished(
                agent_id=job.agent_id,
                job_id=job.id,
                kind=job.kind.value,
                what=job.what,
                call_id=job.call_id,
                state=job.state.value,
                exit_code=job.exit_code,
                duration_s=job.duration_s,
                note=job.note,
                output_bytes=ending.output_bytes,
                output_path=job.output_path,
            )
        )
        if not job.watchers:
            job.tell()
        job.done.set()
        self._ended.set()
        self._ended = anyio.Event()
        self._forget()

    def _tell(self, job: Job, queue: MessageQueue) -> None:
        if job.state is JobState.CLOSED:
            return  # nobody is there any more to be told
        message = queue.put(told(job), Priority.LATER)
        job.take_back = partial(queue.withdraw, message)

    def _forget(self) -> None:
        ended = [job.id for job in self._jobs.values() if not job.running]
        for job_id in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._jobs[job_id]


def told(job: Job) -> str:
    """How a job ended, for the model."""
    where, output = job.where(), ""
    if job.tail:
        which = "its report" if job.kind is JobKind.AGENT else "the last of what it printed"
        # Nothing in it can end the mark around it early.
        text = _MARK_BEGINS.sub("&lt;", job.tail)
        output = "\n" + prompt("engine/job_output").format(which=which, id=job.id, text=text)
    return prompt("engine/job_ended").format(
        id=job.id,
        kind=_KINDS[job.kind],
        what=job.what,
        ended=job.ended_words(),
        where=f" {where}" if where else "",
        output=output,
    )
