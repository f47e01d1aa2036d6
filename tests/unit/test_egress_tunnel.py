"""The engine's end of the stream: what comes up is hostile, and losing it ends everything on it."""

from __future__ import annotations

import math
import socket
import sys

import anyio
import pytest
from egress_rig import PATIENCE_S, PipeChannel, free_port

from sandbox_agent.sandboxes.egress import wire
from sandbox_agent.sandboxes.egress.tunnel import MAX_ORPHANS, Carried, ClientGoneError, Tunnel, TunnelLostError
from sandbox_agent.sandboxes.program import command

OPENED = wire.frame(wire.OPEN, 1)


class FakeChannel:
    """A forwarder whose every byte the test says."""

    def __init__(self) -> None:
        self.say, self._said = anyio.create_memory_object_stream[bytes](math.inf)
        self.sent = b""
        self.closed = False

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def receive(self) -> bytes:
        return await self._said.receive()

    async def aclose(self) -> None:
        self.closed = True
        self.say.close()
        self._said.close()

    def diagnostics(self) -> str:
        return ""


async def lost(*frames: bytes) -> str:
    """Why the tunnel is lost after these."""

    async def idle(carried: Carried) -> None:
        await anyio.sleep_forever()

    channel = FakeChannel()
    for frame in (*frames, b""):
        channel.say.send_nowait(frame)
    with anyio.fail_after(PATIENCE_S), pytest.raises(TunnelLostError) as caught:
        await Tunnel(channel).run(idle)
    await channel.aclose()
    return str(caught.value)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "was killed or ended"),
        ([OPENED], "was killed or ended"),
        ([b"\xff\xff\xff\xff\x21\0\0\0\1"], "sent a frame of 4294967295 bytes"),
        ([wire.frame(wire.DATA, 1, b"x")], "for a connection that is not there"),
        ([OPENED, OPENED], "sent a frame of kind 32 in a connection"),
        ([wire.frame(wire.OPEN, 5), wire.frame(wire.OPEN, 4)], "for a connection that is not there"),
        ([wire.frame(wire.OPEN, 1, b"x")], "for a connection that is not there"),
        ([wire.frame(wire.READY, 0)], "for a connection that is not there"),
        ([OPENED, wire.frame(99, 1)], "sent a frame of kind 99 in a connection"),
        ([OPENED, wire.frame(wire.DATA, 1)], "sent a frame of kind 33 in a connection"),
        ([OPENED, wire.frame(wire.EOF, 1), wire.frame(wire.DATA, 1, b"x")], "sent a frame of kind 33 in a connection"),
        ([OPENED, wire.frame(wire.CREDIT, 1, b"\0\0\0\1")], "sent more credit than was used"),
        ([OPENED, wire.frame(wire.CREDIT, 1, b"\1")], "sent a frame of kind 34 in a connection"),
        ([OPENED, *[wire.frame(wire.DATA, 1, b"x" * wire.CHUNK_BYTES)] * 5], "sent more data than may be under way"),
        ([wire.frame(wire.OPEN, number) for number in range(1, 130)], "sent more connections than there may be"),
    ],
)
async def test_what_no_forwarder_sends_ends_the_tunnel(frames: list[bytes], reason: str) -> None:
    """Also what would make the engine hold more than it should."""
    assert reason in await lost(*frames)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (wire.frame(wire.FAILED, 0, b"no \x1b[31mport"), "cannot work: no  [31mport"),
        (OPENED, "sent what it never sends"),
        (b"", "was killed or ended"),
    ],
)
async def test_a_forwarder_that_does_not_start_is_told(said: bytes, reason: str) -> None:
    """Its words go to a terminal: nothing in them acts on one."""
    channel = FakeChannel()
    channel.say.send_nowait(said)
    with pytest.raises(TunnelLostError) as caught:
        await Tunnel(channel).open(1, {})
    assert str(caught.value) == reason
    await channel.aclose()


async def test_every_connection_ends_with_the_tunnel() -> None:
    """Whoever receives gets the end, whoever sends an error."""
    channel, seen = FakeChannel(), []

    async def serve(carried: Carried) -> None:
        seen.append(await carried.receive())
        await carried.send(b"x" * wire.WINDOW_BYTES)
        with anyio.CancelScope(shield=True), pytest.raises(ClientGoneError):
            await carried.send(b"y")
        seen.append(b"ended")

    channel.say.send_nowait(OPENED + wire.frame(wire.DATA, 1, b"hello"))

    async def cut() -> None:
        while channel.sent.count(b"x") < wire.WINDOW_BYTES:
            await anyio.lowlevel.checkpoint()
        channel.say.send_nowait(b"")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            with pytest.raises(TunnelLostError):
                await Tunnel(channel).run(serve)
    await channel.aclose()
    assert seen == [b"hello", b"ended"]


async def test_connections_that_tools_close_at_once_do_not_pile_up() -> None:
    """Each may be waiting for a server that never answers, with all the data that it brought: the oldest go."""
    channel, gone = FakeChannel(), list[int]()
    more = 3

    async def dials(carried: Carried) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            gone.append(carried.number)
            if len(gone) == more:
                channel.say.send_nowait(b"")

    for number in range(1, MAX_ORPHANS + more + 1):
        said = wire.frame(wire.OPEN, number) + wire.frame(wire.DATA, number, b"x") + wire.frame(wire.CLOSE, number)
        channel.say.send_nowait(said)
    with anyio.fail_after(PATIENCE_S), pytest.raises(TunnelLostError):
        await Tunnel(channel).run(dials)
    await channel.aclose()
    assert gone[:more] == [1, 2, 3]


async def test_a_port_that_is_taken_is_told() -> None:
    """The real forwarder; it ends by itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = PipeChannel(await anyio.open_process(command(sys.executable), stderr=None))
        with pytest.raises(TunnelLostError, match=r"cannot work: .*Address already in use"):
            await Tunnel(channel).open(server.getsockname()[1], {})
        with anyio.fail_after(PATIENCE_S):
            assert await channel.process.wait() == 0
        await channel.aclose()


async def test_a_folder_that_is_not_the_forwarder_s_is_not_written_to() -> None:
    """There is none outside of a container: it says so and ends."""
    channel = PipeChannel(await anyio.open_process(command(sys.executable), stderr=None))
    with pytest.raises(TunnelLostError, match="cannot work"):
        await Tunnel(channel).open(free_port(), {"x": b"y"})
    await channel.aclose()
