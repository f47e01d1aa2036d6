"""What runs on after its call: it starts at once, has limits, and ends exactly once, whoever ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest
from engine_session import finished, play, recorded, use
from jobs_rig import JobsRig, jobs_rig

from sandbox_agent.engine.jobs import MOST_SHELLS, Ending
from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.engine.undoing import undo_here
from sandbox_agent.errors import SandboxDiedError, ToolError
from sandbox_agent.events import CallEffects, JobFinished
from sandbox_agent.tools.jobs import Job, JobKind, JobState


def said(result: object) -> str:
    return str(getattr(result, "content", result))


async def test_stopping_is_once(tmp_path: Path) -> None:
    """Twice at once is one end; of what has ended there is nothing to stop; what ended first is not called stopped."""
    async with jobs_rig(tmp_path) as rig:
        job_id = await rig.start("sleep 1000")
        async with anyio.create_task_group() as group:
            group.start_soon(rig.stop, job_id)
            group.start_soon(rig.stop, job_id)
        again = await rig.stop(job_id)
        quick = await rig.start("wait-for it")
        await anyio.wait_all_tasks_blocked()
        rig.gates.gate("it").set()
        ended = await rig.stop(quick)

    assert again.is_error
    assert f"There is nothing to stop: {job_id} was stopped" in said(again)
    assert rig.ends()[0] == (job_id, "killed")
    assert len(rig.ends()) == 2
    assert rig.ends()[1][1] in ("killed", "exited")
    assert ("before it could be stopped" in said(ended)) is (rig.ends()[1][1] == "exited")


async def test_the_first_reason_to_stop_holds(tmp_path: Path) -> None:
    """Whoever comes while it is being ended waits for the same end."""
    async with jobs_rig(tmp_path) as rig:
        job_id = await rig.start("sleep 1000")
        [job] = rig.session.jobs.running()
        async with anyio.create_task_group() as group:
            group.start_soon(job.stop, "first")
            group.start_soon(job.stop, "second", JobState.CLOSED)

    assert (job.note, rig.ends()) == ("first", [(job_id, "killed")])


async def test_a_job_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """`timeout` is it; what was printed by then is there."""
    async with jobs_rig(tmp_path) as rig:
        job_id = await rig.start("echo begun; sleep 1000", timeout=50)
        result = await rig.output(job_id)

    assert said(result).startswith(f"begun\n[{job_id} was killed at its limit of 0.05 s, after ")
    assert rig.ends() == [(job_id, "timed_out")]


async def test_jobs_end_with_the_session(tmp_path: Path) -> None:
    """One last event each, also in the record; nobody is told, and nothing can be started afterwards."""
    async with jobs_rig(tmp_path) as rig:
        ids = [await rig.start("sleep 1000"), await rig.start("sleep 2000")]
        await rig.session.jobs.close()
        refused = await rig.bash("true")
        assert rig.waiting() == []

    assert sorted(rig.ends()) == [(job_id, "closed") for job_id in sorted(ids)]
    assert "the session ended" in said(refused)
    assert [event.state for event in recorded(tmp_path) if isinstance(event, JobFinished)] == ["closed", "closed"]


async def test_a_session_that_is_cut_off_ends_its_jobs(tmp_path: Path) -> None:
    """Nobody closed them: their tasks are cancelled, and each still tells of its end."""
    async with jobs_rig(tmp_path) as rig:
        job_id = await rig.start("sleep 1000")
        await anyio.wait_all_tasks_blocked()

    assert rig.ends() == [(job_id, "closed")]


async def test_all_jobs_of_an_agent_can_be_stopped(tmp_path: Path) -> None:
    """With a reason; others go on, and new ones can be started."""
    async with jobs_rig(tmp_path) as rig:
        mine = await rig.start("sleep 1000")
        rig.session.ctx.jobs._session.agent_id = "agent-1"  # type: ignore[union-attr]
        other = await rig.start("sleep 1000")
        assert [job.id for job in await rig.session.jobs.stop_all("undone", "main")] == [mine]
        assert [job.id for job in rig.session.jobs.running()] == [other]
        assert rig.ends() == [(mine, "killed")]
        rig.session.ctx.jobs._session.agent_id = "main"  # type: ignore[union-attr]
        assert "was stopped (undone)" in said(await rig.output(mine))


async def test_too_many_commands_are_refused(tmp_path: Path) -> None:
    """With what to do about it; one that ends makes room."""
    async with jobs_rig(tmp_path) as rig:
        ids = [await rig.start("sleep 1000") for _ in range(MOST_SHELLS)]
        refused = await rig.bash("echo one more")
        assert refused.is_error
        assert f"{MOST_SHELLS} commands run in the background already" in said(refused)
        assert all(job_id in said(refused) for job_id in ids)
        await rig.stop(ids[3])
        await rig.start("sleep 1000")

        assert len(rig.starts()) == MOST_SHELLS + 1


async def test_a_fault_of_what_it_runs_on_is_its_end(tmp_path: Path) -> None:
    """The sandbox dies: failed, with the reason; and where its folder is gone it never begins."""
    async with jobs_rig(tmp_path) as rig:
        job_id = await rig.start("sleep 1000")
        await anyio.wait_all_tasks_blocked()
        rig.session.sandbox.die(137, oom_killed=True)  # type: ignore[attr-defined]
        await rig.ended()

        assert rig.ends() == [(job_id, "failed")]
        assert "out of memory" in rig.waiting()[0]
    async with jobs_rig(tmp_path / ".") as rig:
        rig.session.ctx.cwd = "/workspace/gone"
        refused = await rig.bash("true")
        assert refused.is_error
        assert "is gone" in said(refused)
        assert rig.session.ctx.cwd == "/workspace"
        assert rig.starts() == []


async def test_the_oldest_ended_jobs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is never forgotten."""
    monkeypatch.setattr("sandbox_agent.engine.jobs.MOST_KEPT", 2)
    async with jobs_rig(tmp_path) as rig:
        running = await rig.start("sleep 1000")
        ended = []
        for _ in range(4):
            ended.append(await rig.start("true"))
            await rig.output(ended[-1])
        assert [job.id for job in rig.session.jobs.of("main")] == [running, *ended[-2:]]


async def test_a_fault_of_the_work_fails_the_job(tmp_path: Path) -> None:
    """Whatever the kind of job."""
    async with jobs_rig(tmp_path) as rig:
        queue = MessageQueue()

        async def work(_: Job) -> Ending:
            raise SandboxDiedError("gone for good")

        job = Job(id="agent-1", kind=JobKind.AGENT, what="look", agent_id="main", call_id="c")
        rig.session.jobs.add(job, work, queue)
        with pytest.raises(ValueError, match="runs already"):
            rig.session.jobs.add(job, work, queue)
        await job.done.wait()

        assert (job.state, job.note) == (JobState.FAILED, "gone for good")
        assert "gone for good" in str(queue.take(Priority.LATER))
        assert rig.session.jobs.free_id("agent-1") == "agent-1"


async def test_the_disk_limit_stops_a_job(tmp_path: Path) -> None:
    """Where it is watched: as it stops a call, with the same words."""

    class Watched:
        """Stops what is guarded when the test says so."""

        def __init__(self) -> None:
            self.scope = anyio.CancelScope()
            self.told: str | None = None

        @contextmanager
        def guarding(self) -> Iterator[Watched]:
            with self.scope:
                yield self

    async with jobs_rig(tmp_path) as rig:
        watched = Watched()
        rig.session.disk = watched  # type: ignore[assignment]
        job_id = await rig.start("sleep 1000")
        await anyio.wait_all_tasks_blocked()
        watched.told = "the disk limit was passed"
        watched.scope.cancel()
        await rig.ended()

        assert rig.ends() == [(job_id, "killed")]
        assert "was stopped (the disk limit was passed)" in rig.waiting()[0]


async def test_an_undo_ends_what_runs(tmp_path: Path) -> None:
    """Before anything is brought back."""
    seen: list[int] = []

    class Back(Exception):
        """Far enough for this test."""

    async with jobs_rig(tmp_path) as rig:

        async def undo(to: int | None, *, rewind: bool) -> None:
            seen.append(len(rig.session.jobs.running()))
            raise Back

        rig.session.checkpoints = SimpleNamespace(undo=undo)  # type: ignore[assignment]
        job_id = await rig.start("sleep 1000")
        with pytest.raises(Back):
            await undo_here(rig.session, None, rewind=False)

        assert (seen, rig.ends()) == ([0], [(job_id, "killed")])
        assert "an undo ends what runs in the background" in rig.waiting()[0]


async def test_waiting_for_a_change_and_for_quiet(tmp_path: Path) -> None:
    """Nothing to wait for is False at once; one end is enough; the rest is named when the time is up."""
    async with jobs_rig(tmp_path) as rig:
        jobs = rig.session.jobs
        assert await jobs.wait_change(10) is False
        await rig.start("wait-for a")
        other = await rig.start("sleep 1000")
        assert await jobs.wait_change(0.01) is False
        async with anyio.create_task_group() as group:
            group.start_soon(jobs.wait_change, 10)
            await anyio.wait_all_tasks_blocked()
            rig.gates.gate("a").set()
        assert [job.id for job in await jobs.wait_idle(0.01)] == [other]
        assert rig.session.queue.waiting()
        await rig.start("wait-for b")
        async with anyio.create_task_group() as group:
            group.start_soon(rig.ended)
            await anyio.wait_all_tasks_blocked()
            rig.gates.gate("b").set()
            await jobs.wait_change(10)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(rig.stop, other)


async def test_the_model_goes_on_when_its_job_has_ended(tmp_path: Path) -> None:
    """It stops while a job runs; the end of that is its next message, and then it stops for good."""
    turns = [
        {"tools": [use("Bash", command="echo from the job; exit 4", run_in_background=True)]},
        {"text": "I wait."},
        {"text": "It ended with 4."},
    ]
    async with jobs_rig(tmp_path, turns=turns) as rig:
        events = await play(rig.session)

        rig.session.effects.blind()
        assert not rig.session.effects.pending

    assert finished(events).text == "It ended with 4."
    assert [kind for kind in map(type, recorded(tmp_path)) if kind in (JobFinished, CallEffects)] == [
        JobFinished,
        CallEffects,
    ]
    told = [message for message in rig.session.messages if "ended with exit code 4" in str(message["content"])]
    assert len(told) == 1
    assert "from the job" in str(told[0])


def test_an_id_is_of_the_call(tmp_path: Path) -> None:
    """The same when it is played again, plain whatever the call is called, and never twice."""

    async def ids(rig: JobsRig) -> list[str]:
        return [rig.session.jobs.new_id("bash", call_id) for call_id in ("toolu_01AbCdEfGhIj", "", "a b\n/../ü")]

    async def main() -> None:
        async with jobs_rig(tmp_path) as rig:
            assert await ids(rig) == ["bash_CdEfGhIj", "bash_job", "bash_ab"]
            first = await rig.start("true")
            rig.calls -= 1
            assert await rig.start("true") == f"{first}_2"

    anyio.run(main)


async def test_a_refused_start_leaves_no_trace(tmp_path: Path) -> None:
    """No event, the registry is as before, and the call is over with its refusal."""
    turns = [{"tools": [use("Bash", command="true", run_in_background=True)]}, {"text": "done"}]
    async with jobs_rig(tmp_path, turns=turns) as rig:
        await rig.session.jobs.close()
        await play(rig.session)
        assert not rig.session.effects.pending
        job = Job(id="x", kind=JobKind.SHELL, what="w", agent_id="main", call_id="c")
        with pytest.raises(ToolError, match="no job outlives it"):
            rig.session.jobs.add(job, lambda _: anyio.sleep_forever(), MessageQueue())  # type: ignore[arg-type,return-value]

        assert (rig.starts(), rig.session.jobs.of("main")) == ([], ())
