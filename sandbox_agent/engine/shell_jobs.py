"""Commands as jobs: one `exec` each, with its own limit, its output in a bounded file, and all it starts ended with it.

What a job does is the doing of the call that started it, which is followed until the job is over: see `effects`.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from sandbox_agent.engine.effects import Doing
from sandbox_agent.engine.jobs import Ending
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import KIB, ExecResult, Sandbox
from sandbox_agent.tools.base import current_call
from sandbox_agent.tools.jobs import Job, JobKind, JobOutput, JobState, ShellCommand

KEPT_BYTES = 256 * KIB
"""Of the output, on the host: the file in the container gets the second half of it where it had no room for all."""

SHOWN_JOBS = 20
"""Named where another is asked for."""

TAIL_LINES = 20
TAIL_BYTES = 4 * KIB
"""Shown when it ends."""


class ShellDesk:
    """The jobs of one agent; see `tools.jobs.JobDesk`."""

    def __init__(self, session: Session) -> None:
        """`session` is the agent's own."""
        self._jobs = session.jobs
        self._session = session

    def start_shell(self, command: ShellCommand) -> Job:
        session, call_id = self._session, current_call()
        job = Job(
            id=self._jobs.new_id("bash", call_id),
            kind=JobKind.SHELL,
            what=command.what,
            agent_id=session.agent_id,
            call_id=call_id,
            read=partial(_read, session.sandbox, command.output_path),
            output_path=command.output_path,
            limit_s=command.limit_s,
        )
        doing = session.effects.keep(call_id, session.agent_id)
        try:
            return self._jobs.add(job, partial(self._work, command, doing), session.queue)
        except ToolError:
            if doing is not None:
                doing.kept = False
            raise

    def get(self, job_id: str) -> Job:
        job = self._jobs.get(job_id, self._session.agent_id)
        if job is None:
            known = [f"{one.id} ({one.ended_words()})" for one in self._jobs.of(self._session.agent_id)]
            earlier = f"{len(known) - SHOWN_JOBS} earlier ones, " if len(known) > SHOWN_JOBS else ""
            names = f"{earlier}{', '.join(known[-SHOWN_JOBS:])}" or "(none)"
            raise ToolError(
                f"You have no job {job_id[:80]!r}. Yours are: {names}. A job ends with its session and is not in a "
                "fork of it."
            )
        return job

    async def _work(self, command: ShellCommand, doing: Doing | None, job: Job) -> Ending:
        session = self._session
        ended: ExecResult | None = None
        try:
            with session.disk.guarding() if session.disk is not None else nullcontext() as guarded:
                ended = await session.sandbox.exec(
                    command.argv,
                    cwd=command.cwd,
                    timeout_s=command.limit_s,
                    max_output_bytes=KEPT_BYTES,
                    merge_stderr=True,
                    live_path=command.output_path,
                )
        except OSError as exc:
            job.output_path = None
            return Ending(JobState.FAILED, note=f"{command.cwd} cannot be entered any more: {exc.strerror or exc}")
        finally:
            if doing is not None:
                session.effects.release(doing)
        if ended is None:
            return Ending(JobState.KILLED, note=(guarded.told if guarded is not None else None) or "")
        if ended.spill_path is None:
            job.output_path = None
        return _ending(ended, doing)


async def _read(sandbox: Sandbox, path: str, offset: int, limit_bytes: int) -> JobOutput:
    try:
        # Where a command has put a link in its place, what that leads to is judged by nobody: it is not followed.
        content = await sandbox.read_file(path, offset=offset, limit_bytes=limit_bytes, resolved=path)
    except FileNotFoundError:  # it has only just been started
        return JobOutput(b"", offset, 0)
    return JobOutput(content.data, offset, content.size_bytes)


def _ending(ended: ExecResult, doing: Doing | None) -> Ending:
    notes = []
    if ended.oom_killed:
        notes.append("out of memory: the container's memory limit was reached and the system killed a process")
    if ended.leftover_processes and not ended.timed_out:
        notes.append(f"{ended.leftover_processes} process(es) still running were killed: nothing outlives its job")
    if doing is not None and doing.refusals:
        notes.append(prompt("engine/egress_refused").format(refusals="; ".join(doing.refusals)))
    return Ending(
        JobState.TIMED_OUT if ended.timed_out else JobState.EXITED,
        exit_code=ended.exit_code,
        note="; ".join(notes),
        tail=_tail(ended.stdout),
        output_bytes=ended.stdout_bytes,
        file_bytes=ended.spill_bytes,
    )


def _tail(output: bytes) -> str:
    """The last lines, or of a very long one its end."""
    text = output[-TAIL_BYTES:].decode("utf-8", "replace").rstrip("\n")
    return "\n".join(text.split("\n")[-TAIL_LINES:])
