"""What the host does when a runner dies, seen on a container that writes down what is asked of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import anyio
import pytest
from held_channel import HeldChannel

from sandbox_agent.errors import SandboxDiedError
from sandbox_agent.sandboxes.frames import RunnerKilledError
from sandbox_agent.sandboxes.program import INTERPRETERS
from sandbox_agent.sandboxes.resident import RUNNER_KILLED, Resident
from sandbox_agent.sandboxes.runner import wire
from sandbox_agent.sandboxes.runners import Cleared, NoRunnerError, Runners

HELLO = wire.frame(wire.HELLO, 0, b"3.11.2")


class NotedContainer:
    """Gives out channels in turn: one that speaks (True), has ended (False), or is silent (None); `log` is what was
    asked for, in order."""

    def __init__(self, *speaks: bool | None) -> None:
        self.log: list[str] = []
        self.channels: list[HeldChannel] = []
        self.death: SandboxDiedError | None = None
        self.oom_kills: int | None = 0
        self._speaks = list(speaks)

    async def open_program(self, argv: Sequence[str]) -> HeldChannel:
        self.log.append(f"start {argv[0]}")
        channel = HeldChannel()
        speaks = self._speaks.pop(0) if self._speaks else True
        if speaks:
            channel.say(HELLO)
        elif speaks is False:
            channel.hang_up()
        self.channels.append(channel)
        return channel

    async def clear(self) -> Cleared:
        self.log.append("clear")
        return Cleared(self.oom_kills)

    async def restart(self) -> None:
        self.log.append("restart")

    async def raise_if_dead(self) -> None:
        if self.death:
            raise self.death


async def resident(container: NotedContainer, later_deadline_s: float = 10) -> Resident:
    runners = Runners(container)
    await runners.connect()
    container.log.clear()
    return Resident(runners, later_deadline_s=later_deadline_s)


def answer(channel: HeldChannel, number: int, stdout: bytes = b"") -> None:
    """The runner ends a call with this output."""
    if stdout:
        channel.say(wire.frame(wire.STDOUT, number, stdout))
    channel.say(wire.frame(wire.RESULT, number, wire.RESULT_BODY.pack(0, 0, len(stdout), 0, 0.1, 0, 0, 0.0, 0)))


async def test_everything_is_cleared_before_the_next_runner_starts() -> None:
    """The call under way gets its error only then, and the next call has the new runner."""
    container = NotedContainer()
    sandbox = await resident(container)
    results = []

    async def first() -> None:
        results.append(await sandbox.exec(["sleep", "9"]))
        container.log.append("told")

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        container.channels[0].hang_up()
    async with anyio.create_task_group() as group:

        async def second() -> None:
            results.append(await sandbox.exec(["echo"]))

        group.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        answer(container.channels[1], 1, b"\n")

    assert container.log == ["clear", "told", "start /usr/lib/sandbox-agent/python3"]
    assert [result.exit_code for result in results] == [137, 0]
    assert results[0].stderr.decode().startswith(f"{RUNNER_KILLED} was killed or ended.")


async def test_every_open_call_is_told_and_it_is_cleared_once() -> None:
    """Programs by exit code, file verbs by their own error, streams by their end."""
    container = NotedContainer()
    sandbox = await resident(container)
    told: list[object] = []

    async def program(merge: bool) -> None:
        result = await sandbox.exec(["sleep", "9"], merge_stderr=merge)
        told.append((result.exit_code, (result.stdout if merge else result.stderr).startswith(b"sandbox: ")))

    async def file() -> None:
        with pytest.raises(RunnerKilledError):
            await sandbox.read_file("/workspace/file")
        told.append("file")

    async def stream() -> None:
        opened = await sandbox.open(["cat"])
        told.append((await opened.receive(), await opened.exit_code()))

    async with anyio.create_task_group() as group:
        group.start_soon(program, False)
        group.start_soon(program, True)
        group.start_soon(file)
        group.start_soon(stream)
        await anyio.wait_all_tasks_blocked()
        container.channels[0].hang_up()

    assert sorted(map(str, told)) == sorted(["(137, True)", "(137, True)", "file", "(b'', 137)"])
    assert container.log == ["clear"]


async def test_a_call_that_is_not_reported_in_time_costs_the_runner() -> None:
    """The host's own, later deadline."""
    container = NotedContainer()
    sandbox = await resident(container, later_deadline_s=-1.9)
    result = await sandbox.exec(["sleep", "9"], timeout_s=0.1)

    assert (result.exit_code, b"did not report a call in time" in result.stderr) == (137, True)
    assert container.log == ["clear"]


async def test_a_runner_that_cannot_be_started_costs_what_lies_in_memory() -> None:
    """Three attempts, cleared between them; then the container is started again, and the call is told of it."""
    container = NotedContainer(True, False, False, False)
    sandbox = await resident(container)
    container.channels[0].hang_up()
    results = [await sandbox.exec(["echo"]), await sandbox.exec(["echo"])]
    async with anyio.create_task_group() as group:

        async def third() -> None:
            results.append(await sandbox.exec(["echo"]))

        group.start_soon(third)
        await anyio.wait_all_tasks_blocked()
        answer(container.channels[-1], 1)

    start = "start /usr/lib/sandbox-agent/python3"
    assert container.log == ["clear", start, "clear", start, "clear", start, "clear", "restart", start]
    assert [result.exit_code for result in results] == [137, 137, 0]
    assert b"the container was started again, and /tmp and the home folder are empty now" in results[1].stderr


async def test_a_runner_that_does_not_start_in_a_new_container_either_is_an_error() -> None:
    """The call after that tries again."""
    container = NotedContainer(True, False, False, False, False, True)
    sandbox = await resident(container)
    container.channels[0].hang_up()
    results = [await sandbox.exec(["echo"]), await sandbox.exec(["echo"])]
    async with anyio.create_task_group() as group:

        async def third() -> None:
            results.append(await sandbox.exec(["echo"]))

        group.start_soon(third)
        await anyio.wait_all_tasks_blocked()
        answer(container.channels[-1], 1)

    assert [result.exit_code for result in results] == [137, 137, 0]


async def test_a_runner_that_the_memory_limit_ended_is_told_as_such() -> None:
    """Once for each kill; one that a call has reported itself explains nothing that comes later."""
    container = NotedContainer()
    sandbox = await resident(container)
    told = []
    for kills, reported in ((2, False), (2, False), (3, True)):
        container.oom_kills = kills
        async with anyio.create_task_group() as group:

            async def call() -> None:
                told.append((await sandbox.exec(["echo"])).oom_killed)

            if reported:
                group.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                body = wire.RESULT_BODY.pack(1, wire.OOM_KILLED, 0, 0, 0.1, 0, 0, 0.0, 0)
                container.channels[-1].say(wire.frame(wire.RESULT, 1, body))
                await anyio.wait_all_tasks_blocked()
            group.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            container.channels[-1].hang_up()

    assert told == [True, False, True, False]


async def test_a_dead_container_is_told_to_every_call_from_then_on() -> None:
    """Nothing is cleared or started any more."""
    container = NotedContainer()
    sandbox = await resident(container)
    container.death = SandboxDiedError("dead", container_exit_code=137)
    container.channels[0].hang_up()
    for _ in range(2):
        with pytest.raises(SandboxDiedError, match="dead"):
            await sandbox.exec(["echo"])

    assert container.log == []


async def test_the_toolbox_and_then_the_images_own_python_are_next() -> None:
    """And without any of them there is no runner, with all reasons."""
    container = NotedContainer(False, False, True)
    await Runners(container).connect()
    assert container.log == [f"start {program}" for program in INTERPRETERS]
    reasons = "; ".join(f"{program}: is gone" for program in INTERPRETERS)
    with pytest.raises(NoRunnerError, match=f"^{re.escape(reasons)}$"):
        await Runners(NotedContainer(False, False, False)).connect()


async def test_a_start_that_is_given_up_leaves_no_stream_open() -> None:
    """A runner that never speaks; the call is cancelled, and the next one starts anew."""
    container = NotedContainer(True, None, False, False, False)
    sandbox = await resident(container)
    container.channels[0].hang_up()
    await sandbox.exec(["echo"])
    with anyio.move_on_after(0.05):
        await sandbox.exec(["echo"])

    assert [channel.closed for channel in container.channels] == [True, True]
    assert (await sandbox.exec(["echo"])).exit_code == 137
