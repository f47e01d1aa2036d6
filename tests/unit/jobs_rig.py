"""A session whose agent can run commands as jobs, on a sandbox in memory whose programs a test lets go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from engine_session import make_session

from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.shell_jobs import ShellDesk
from sandbox_agent.events import Event, JobFinished, JobStarted
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.tool_calls import call
from sandbox_agent.tools.base import as_call
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.task_output import TOOL as TASK_OUTPUT
from sandbox_agent.tools.task_stop import TOOL as TASK_STOP
from sandbox_agent.types import ToolResult

JOB_TOOLS = (BASH, TASK_OUTPUT, TASK_STOP)


@dataclass
class Gates:
    """The program `wait-for NAME` prints NAME once the test opens that gate."""

    opened: dict[str, anyio.Event] = field(default_factory=dict)

    def gate(self, name: str) -> anyio.Event:
        return self.opened.setdefault(name, anyio.Event())

    async def __call__(self, asked: ProgramCall) -> ProgramOutput:
        name = asked.argv[1]
        await self.gate(name).wait()
        return ProgramOutput(f"{name}\n".encode())


@dataclass
class JobsRig:
    session: Session
    gates: Gates
    heard: list[Event]
    calls: int = 0

    async def bash(self, command: str, **options: Any) -> ToolResult:
        """Start a command in the background, as the call that the engine would make of it."""
        self.calls += 1
        with as_call(f"toolu_{self.calls}"):
            return await call(BASH, self.session.ctx, {"command": command, "run_in_background": True, **options})

    async def start(self, command: str, **options: Any) -> str:
        """The same; its id."""
        result = await self.bash(command, **options)
        assert not result.is_error, result.content
        return str(result.meta["job_id"])

    async def output(self, job_id: str, **options: Any) -> ToolResult:
        with anyio.fail_after(10):
            return await call(TASK_OUTPUT, self.session.ctx, {"task_id": job_id, **options})

    async def stop(self, job_id: str) -> ToolResult:
        with anyio.fail_after(10):
            return await call(TASK_STOP, self.session.ctx, {"task_id": job_id})

    async def ended(self) -> None:
        """Wait until nothing runs any more."""
        assert await self.session.jobs.wait_idle(10) == ()

    def waiting(self) -> list[str]:
        """What the model has not been told yet."""
        return [str(message.content[0]["text"]) for message in self.session.queue.take(Priority.LATER)]

    def ends(self) -> list[tuple[str, str]]:
        """Id and state of every end that was told."""
        return [(event.job_id, event.state) for event in self.heard if isinstance(event, JobFinished)]

    def starts(self) -> list[str]:
        return [event.job_id for event in self.heard if isinstance(event, JobStarted)]


@asynccontextmanager
async def jobs_rig(folder: Path, *, turns: Any = ({"text": "done"},), **options: Any) -> AsyncIterator[JobsRig]:
    """Commands run for real as far as the sandbox in memory knows them."""
    gates = Gates()
    sandbox = FakeSandbox(programs={"wait-for": gates})
    heard: list[Event] = []
    async with make_session(turns, folder, tools=JOB_TOOLS, sandbox=sandbox, **options) as session:
        session.ctx.jobs = ShellDesk(session)
        emit = session.jobs._emit

        def listen(event: Event) -> None:
            heard.append(event)
            emit(event)

        session.jobs._emit = listen
        yield JobsRig(session, gates, heard)
