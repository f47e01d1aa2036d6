"""One runner as the host sees it, over a channel the test holds the other end of."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from held_channel import HeldChannel

from sandbox_agent.sandboxes.calls import ExecCall, ResolveCall
from sandbox_agent.sandboxes.connection import Connection, RunnerGoneError
from sandbox_agent.sandboxes.runner import wire

HELLO = wire.frame(wire.HELLO, 0, b"3.11.2")
DONE = wire.RESULT_BODY.pack(0, 0, 0, 0, 0.1, 0, 0, 0.0, 0)


async def connected(channel: HeldChannel, heartbeat_s: float = 60) -> Connection:
    """A connection whose runner has spoken."""
    channel.say(HELLO)
    connection = Connection(channel, heartbeat_s=heartbeat_s)
    await connection.start(b"program")
    return connection


async def test_the_program_is_sent_and_its_word_awaited() -> None:
    """The version is what it says."""
    channel = HeldChannel()
    connection = await connected(channel)

    assert (channel.sent, connection.version) == ([b"program"], "3.11.2")


async def test_a_runner_that_ends_before_it_speaks_is_gone() -> None:
    """That is the error of the start."""
    channel = HeldChannel()
    channel.hang_up()
    with pytest.raises(RunnerGoneError):
        await Connection(channel).start(b"program")


async def test_answers_may_come_in_any_order() -> None:
    """Each task gets its own; only one of them reads at a time."""
    channel = HeldChannel()
    connection = await connected(channel)
    calls = [ExecCall(10) for _ in range(5)]
    numbers = [connection.add(call) for call in calls]
    ended: list[int] = []

    async def wait(number: int) -> None:
        await connection.wait(number)
        ended.append(number)

    async with anyio.create_task_group() as group:
        for number in numbers:
            group.start_soon(wait, number)
        for number in reversed(numbers):
            await anyio.wait_all_tasks_blocked()
            channel.say(wire.frame(wire.RESULT, number, DONE))

    assert ended == list(reversed(numbers))
    assert channel.most_readers == 1


async def test_who_reads_hands_over_when_it_is_cancelled() -> None:
    """The others still get their answers."""
    channel = HeldChannel()
    connection = await connected(channel)
    first, second = connection.add(ExecCall(10)), connection.add(ExecCall(10))
    async with anyio.create_task_group() as group:
        reader = anyio.CancelScope()

        async def read() -> None:
            with reader:
                await connection.wait(first)

        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(connection.wait, second)
        await anyio.wait_all_tasks_blocked()
        reader.cancel()
        await anyio.wait_all_tasks_blocked()
        channel.say(wire.frame(wire.RESULT, second, DONE))

    assert channel.readers == 0


@pytest.mark.parametrize(
    "said",
    [
        wire.frame(wire.RESULT, 99, DONE),
        wire.frame(wire.RESULT, 1, DONE) * 2,
        wire.frame(wire.PONG, 0),
        HELLO,
        wire.frame(wire.HELLO, 1, b"3.11"),
        wire.frame(200, 1),
        wire.frame(wire.STDOUT, 1, bytes(11)),
        wire.HEADER.pack(2**31, wire.STDOUT, 1),
        b"\xff" * 100,
        b"HTTP/1.1 200 OK\r\n",
    ],
)
async def test_what_no_runner_sends_ends_it(said: bytes) -> None:
    """Unknown calls, second ends, unasked answers, too much, or garbage."""
    channel = HeldChannel()
    connection = await connected(channel)
    first, second = connection.add(ExecCall(10)), connection.add(ExecCall(10))
    channel.say(said)
    with pytest.raises(RunnerGoneError, match="sent"):
        await connection.wait(second)
    with pytest.raises(RunnerGoneError, match="sent"):
        await connection.send(first, wire.STDIN_EOF)


async def test_the_end_of_the_runner_ends_every_call() -> None:
    """Waiting ones, and those that come after."""
    channel = HeldChannel()
    connection = await connected(channel)
    ended: list[str] = []

    async def wait(number: int) -> None:
        with pytest.raises(RunnerGoneError) as caught:
            await connection.wait(number)
        ended.append(str(caught.value))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait, connection.add(ResolveCall(1)))
        await anyio.wait_all_tasks_blocked()
        channel.hang_up()

    assert ended == ["was killed or ended"] * 3


async def test_a_silent_runner_is_asked_and_then_gone() -> None:
    """Three questions without an answer."""
    channel = HeldChannel()
    connection = await connected(channel, heartbeat_s=0.02)
    with pytest.raises(RunnerGoneError, match="does not answer"):
        await connection.wait(connection.add(ExecCall(10)))

    assert channel.sent[1:] == [wire.frame(wire.PING, 0)] * 3


async def test_a_runner_that_answers_may_be_busy_for_long() -> None:
    """Each answer buys as much time again."""
    channel = HeldChannel()
    connection = await connected(channel, heartbeat_s=0.02)
    number = connection.add(ExecCall(10))

    async def answer() -> None:
        for count in range(1, 6):
            while len(channel.sent) <= count:
                await anyio.lowlevel.checkpoint()
            channel.say(wire.frame(wire.PONG, 0))
        channel.say(wire.frame(wire.RESULT, number, DONE))

    async with anyio.create_task_group() as group:
        group.start_soon(answer)
        await connection.wait(number)

    assert connection.gone is None


async def test_a_call_that_is_given_up_is_killed_and_waited_for() -> None:
    """Its last frame may still come; then it is forgotten."""
    channel = HeldChannel()
    connection = await connected(channel)
    number = connection.add(ExecCall(10))
    async with anyio.create_task_group() as group:
        group.start_soon(connection.drop, number)
        await anyio.wait_all_tasks_blocked()
        assert channel.sent[1:] == [wire.frame(wire.KILL, number)]
        channel.say(wire.frame(wire.RESULT, number, DONE))

    assert connection.gone is None


async def test_input_is_sent_as_it_is_taken() -> None:
    """No more than the window is under way, and the rest waits."""
    channel = HeldChannel()
    connection = await connected(channel)
    number = connection.add(ExecCall(10))
    pieces = 3 * wire.WINDOW_BYTES // wire.CHUNK_BYTES
    async with anyio.create_task_group() as group:
        group.start_soon(connection.feed, number, bytes(pieces * wire.CHUNK_BYTES))
        await anyio.wait_all_tasks_blocked()
        assert len(channel.sent) - 1 == wire.WINDOW_BYTES // wire.CHUNK_BYTES
        for _ in range(pieces):
            channel.say(wire.frame(wire.ACK, number, wire.COUNT.pack(wire.CHUNK_BYTES)))

    assert len(channel.sent) - 1 == pieces


async def test_input_that_nobody_takes_is_kept_back() -> None:
    """The program has closed its stdin: the rest is not sent."""
    channel = HeldChannel()
    connection = await connected(channel)
    number = connection.add(ExecCall(10))
    async with anyio.create_task_group() as group:
        group.start_soon(connection.feed, number, bytes(10 * wire.WINDOW_BYTES))
        await anyio.wait_all_tasks_blocked()
        channel.say(wire.frame(wire.STDIN_CLOSED, number))

    assert len(channel.sent) - 1 == wire.WINDOW_BYTES // wire.CHUNK_BYTES
