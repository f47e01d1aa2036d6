"""Commands in the background, for real: nothing of a job outlives it, whatever it started and however it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from tool_box import ToolBox, call, started

from sandbox_agent.engine.effects import Effects
from sandbox_agent.engine.jobs import MOST_SHELLS, Jobs
from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.shell_jobs import ShellDesk
from sandbox_agent.events import Event, JobFinished
from sandbox_agent.sandboxes.base import LIVE_MAX_BYTES, MIB
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.jobs import Job
from sandbox_agent.tools.task_output import TOOL as TASK_OUTPUT
from sandbox_agent.types import ToolResult

pytestmark = pytest.mark.docker

DAEMONS = "setsid sleep 4242 & (setsid sh -c 'setsid sleep 4243' &) ; nohup sleep 4244 >/dev/null 2>&1 &"
LEFT = "pgrep -f '^(sleep 42[4]|sh -c setsid)' || true"


@dataclass
class Rig:
    box: ToolBox
    ctx: ToolContext
    jobs: Jobs
    queue: MessageQueue
    events: list[Event] = field(default_factory=list)

    async def start(self, command: str, **options: Any) -> Job:
        assert self.ctx.jobs is not None
        result = await call(BASH, self.ctx, {"command": command, "run_in_background": True, **options})
        assert not result.is_error, result.content
        return self.ctx.jobs.get(str(result.meta["job_id"]))

    async def front(self, command: str) -> str:
        """What a call prints that runs beside the jobs."""
        ended = await self.box.sandbox.exec(["bash", "-c", command], timeout_s=30, merge_stderr=True)
        return ended.stdout.decode()

    async def output(self, job: Job, **options: Any) -> ToolResult:
        return await call(TASK_OUTPUT, self.ctx, {"task_id": job.id, **options})

    async def until(self, job: Job, text: bytes) -> None:
        with anyio.fail_after(30):
            while text not in (await job.read(0, 1000)).data:
                await anyio.lowlevel.checkpoint()

    def ends(self) -> list[str]:
        return [event.state for event in self.events if isinstance(event, JobFinished)]


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolBox]:
    async with started(tmp_path_factory.mktemp("jobs"), memory_bytes=384 * MIB) as made:
        yield made


@asynccontextmanager
async def agent(box: ToolBox) -> AsyncIterator[Rig]:
    """One agent with its jobs; whatever still runs at the end is ended with it."""
    events: list[Event] = []
    async with anyio.create_task_group() as tasks:
        queue, jobs, ctx = MessageQueue(), Jobs(events.append, tasks), box.fresh()
        session = SimpleNamespace(
            sandbox=box.sandbox, jobs=jobs, effects=Effects(events.append), queue=queue, agent_id="main", disk=None
        )
        ctx.jobs = ShellDesk(cast(Session, session))
        yield Rig(box, ctx, jobs, queue, events)
        tasks.cancel_scope.cancel()


async def test_daemons_end_with_their_job(box: ToolBox) -> None:
    """When its command ends, when it is stopped, when the session closes, and when its tasks are cancelled."""
    async with agent(box) as rig:
        ended = await rig.start(f"{DAEMONS} echo up")
        await ended.done.wait()
        assert (ended.exit_code, "still running were killed" in ended.note) == (0, True)
        assert await rig.front(LEFT) == ""
        stopped = await rig.start(f"{DAEMONS} echo up; wait")
        await rig.until(stopped, b"up\n")
        with anyio.fail_after(30):
            while len((await rig.front(LEFT)).split()) < 3:  # each becomes its program a moment after it was started
                pass
        await stopped.stop("by the test")
        assert await rig.front(LEFT) == ""
        closed = await rig.start(f"{DAEMONS} echo up; wait")
        await rig.until(closed, b"up\n")
        await rig.jobs.close()
        assert await rig.front(LEFT) == ""
    async with agent(box) as other:
        cut = await other.start(f"{DAEMONS} echo up; wait")
        await other.until(cut, b"up\n")
    assert await other.front(LEFT) == ""
    assert (rig.ends(), other.ends()) == (["exited", "killed", "closed"], ["closed"])


async def test_the_limit_of_a_job_is_kept(box: ToolBox) -> None:
    """Also by what takes no notice of TERM; what was printed is there."""
    async with agent(box) as rig:
        job = await rig.start("trap '' TERM; echo begun; setsid sleep 4242 & while true; do sleep 1; done", timeout=300)
        result = await rig.output(job)
        assert await rig.front(LEFT) == ""

    assert str(result.content).startswith("begun\n")
    assert rig.ends() == ["timed_out"]
    assert not rig.queue.waiting()


async def test_a_flood_is_bounded_and_its_end_can_be_read(box: ToolBox) -> None:
    """The first 16 MiB while it runs, and behind them the last lines when it has ended."""
    async with agent(box) as rig:
        job = await rig.start("yes | head -c 60000000; echo THE END >&2; exit 5")
        await job.done.wait()
        [told] = rig.queue.take(Priority.LATER)
        last = await rig.output(job)
        middle = await rig.output(job, offset=1_000_000)
        assert job.output_path is not None
        size = int(await rig.front(f"stat -c %s {job.output_path}"))

    assert LIVE_MAX_BYTES < size < LIVE_MAX_BYTES + MIB
    assert last.meta["output_bytes"] == size
    assert "\nTHE END\n" in str(last.content)
    assert "bytes are left out here" in (await rig.front(f"grep -a 'left out' {job.output_path}"))
    assert str(middle.content).startswith("y\ny\n")
    assert "THE END" in str(told.content[0]["text"])
    assert [event.output_bytes for event in rig.events if isinstance(event, JobFinished)] == [60_000_008]


async def test_a_service_is_there_for_later_calls(box: ToolBox) -> None:
    """As long as it runs, and no longer."""
    ask = "python3 -c \"import socket; print(socket.create_connection(('127.0.0.1', 8123)).recv(9))\""
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True)\n"
        "while True: s.accept()[0].sendall(b'served')"
    )
    async with agent(box) as rig:
        job = await rig.start(f'python3 -c "{serve}"')
        await rig.until(job, b"up\n")
        assert await rig.front(ask) == "b'served'\n"
        await job.stop()
        assert "ConnectionRefusedError" in await rig.front(ask)


async def test_out_of_memory_is_said(box: ToolBox) -> None:
    """Of the job that used it up; a job beside it goes on."""
    async with agent(box) as rig:
        quiet = await rig.start("echo here; sleep 1000")
        greedy = await rig.start("head -c 2000000000 /dev/zero | tail; exit ${PIPESTATUS[1]}")
        await greedy.done.wait()
        assert quiet.running

    assert "out of memory" in greedy.note
    assert greedy.exit_code == 137


async def test_as_many_as_may_run_do_and_calls_go_on_beside(box: ToolBox) -> None:
    """The next one is refused, and all end together."""
    async with agent(box) as rig:
        jobs = [await rig.start(f"echo {number}; sleep 1000") for number in range(MOST_SHELLS)]
        refused = await call(BASH, rig.ctx, {"command": "true", "run_in_background": True})
        assert refused.is_error
        await rig.until(jobs[-1], b"15\n")
        assert await rig.front("echo beside; pgrep -c -f 'sleep 100[0]'") == f"beside\n{MOST_SHELLS}\n"
        await rig.jobs.close()
        assert await rig.front("pgrep -c -f 'sleep 100[0]' || true") == "0\n"
    assert rig.ends() == ["closed"] * MOST_SHELLS


async def test_whatever_kills_everything_ends_each_job_once(box: ToolBox) -> None:
    """The engine before an undo, or a job that kills all of its user, the runner with it; then all is well again."""
    async with agent(box) as rig:
        for end in (box.sandbox.end_all, lambda: rig.start("kill -9 -1")):
            jobs = [await rig.start("echo up; sleep 1000") for _ in range(2)]
            for job in jobs:
                await rig.until(job, b"up\n")
            await end()
            assert await rig.jobs.wait_idle(30) == ()
            assert await rig.front("echo well") == "well\n"
            assert [job.exit_code for job in jobs] == [137, 137]
    assert len(rig.ends()) == 5


async def test_without_a_runner_it_is_the_same(tmp_path: Path) -> None:
    """One exec per call: live output, its end, and nothing left of what was stopped."""
    async with started(tmp_path, transport="exec") as box, agent(box) as rig:
        job = await rig.start(f"{DAEMONS} echo up; wait")
        await rig.until(job, b"up\n")
        await job.stop()
        assert await rig.front(LEFT) == ""
        other = await rig.start("echo one; echo two >&2; exit 6")
        await other.done.wait()
        assert str((await rig.output(other)).content).startswith("one\ntwo\n")
        assert other.exit_code == 6
    assert rig.ends() == ["killed", "exited"]
