"""The engine's end of the exec stream: the connections that the forwarder carries, each as a byte stream.

What comes up is as hostile as anything from a container: a frame that does not fit ends the tunnel, and with it every
connection. The window bounds what one connection can make us hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import anyio

from sandbox_agent.sandboxes.connection import Channel
from sandbox_agent.sandboxes.egress import wire
from sandbox_agent.sandboxes.frames import Frame, FrameReader, MalformedError
from sandbox_agent.sandboxes.program import bundled

START_S = 15.0
WRITE_S = 15.0
"""For one write to the forwarder, which reads whatever comes: longer, and it hangs."""

MAX_ORPHANS = wire.MAX_CONNECTIONS
"""Connections that their tool has closed and that are still served, to bring what it sent before. A tool can make them
without end, each with a window of data and a server that does not answer: the oldest is given up for a further one."""

_ROOMS = (("sandbox_agent.sandboxes.runner", ("outgoing",)), ("sandbox_agent.sandboxes.egress", ("wire", "forwarder")))


class TunnelLostError(Exception):
    """The forwarder is gone, or sent what it never sends; the text says which. Every connection ended with it."""


class ClientGoneError(Exception):
    """The tool closed its connection, or it was lost with the tunnel."""


class Carried:
    """One connection of a tool, as the engine sees it. One task receives and one sends."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self.number = number
        self._chunks: deque[bytes] = deque()
        self._held_bytes = 0
        self._credit = wire.WINDOW_BYTES
        self._ended = False
        self._gone = False
        self._closed = False
        self._changed = anyio.Event()
        self.serving = anyio.CancelScope()

    @property
    def closed(self) -> bool:
        """Whether nobody serves it any more."""
        return self._closed

    async def receive(self) -> bytes:
        """The next bytes, b"" when no more will come."""
        while not self._chunks:
            if self._ended or self._gone:
                return b""
            await self._changed.wait()
        data = self._chunks.popleft()
        self._held_bytes -= len(data)
        if not self._gone:
            self._tunnel.put(wire.CREDIT, self.number, wire.COUNT.pack(len(data)))
        return data

    async def send(self, data: bytes) -> None:
        """Send all of it, as fast as the tool takes it.

        Raises:
            ClientGoneError: nobody takes it.
        """
        view = memoryview(data)
        while view:
            while not self._credit and not self._gone:
                await self._changed.wait()
            if self._gone or self._closed:
                raise ClientGoneError
            piece = view[: min(self._credit, wire.CHUNK_BYTES)]
            self._credit -= len(piece)
            self._tunnel.put(wire.DATA, self.number, bytes(piece))
            view = view[len(piece) :]
            await self._tunnel.flushed()

    def send_eof(self) -> None:
        """No more will be sent."""
        if not self._gone and not self._closed:
            self._tunnel.put(wire.EOF, self.number)

    def close(self) -> None:
        """Nothing more in either direction; what was sent is still delivered."""
        if not self._closed:
            self._closed = True
            if not self._gone:
                self._tunnel.put(wire.CLOSE, self.number)

    def take(self, kind: int, body: bytes) -> None:
        """A frame of this connection.

        Raises:
            MalformedError: it does not fit.
        """
        if kind == wire.DATA and body and not self._ended:
            self._held_bytes += len(body)
            if self._held_bytes > wire.WINDOW_BYTES:
                raise MalformedError("more data than may be under way")
            if not self._closed:
                self._chunks.append(body)
        elif kind == wire.CREDIT and len(body) == wire.COUNT.size:
            self._credit += wire.COUNT.unpack(body)[0]
            if self._credit > wire.WINDOW_BYTES:
                raise MalformedError("more credit than was used")
        elif kind == wire.EOF and not body and not self._ended:
            self._ended = True
        elif kind == wire.CLOSE and not body:
            self._gone = True
        else:
            raise MalformedError(f"a frame of kind {kind} in a connection")
        self.wake()

    def lose(self) -> None:
        """The tunnel is gone."""
        self._gone = True
        self.wake()

    def wake(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()
        self._changed = anyio.Event()


class Tunnel:
    """One forwarder. `open` it, then `run` until it is lost."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        self._carried: dict[int, Carried] = {}
        self._orphans: dict[int, Carried] = {}
        self._last = 0
        self._unsent: list[bytes] = []
        self._wanted = anyio.Event()
        self._written = anyio.Event()

    async def open(self, port: int, files: Mapping[str, bytes]) -> None:
        """Send the program, and wait until it listens.

        Args:
            port: of the container's loopback.
            files: made in the forwarder's folder before that.

        Raises:
            TunnelLostError: it does not start, or cannot listen.
        """
        with anyio.move_on_after(START_S):
            text = bundled(*_ROOMS).encode()
            try:
                await self._channel.send(b"%08x" % len(text) + text)
                for name, data in files.items():
                    for at in range(0, max(len(data), 1), wire.CHUNK_BYTES):
                        piece = name.encode() + b"\0" + data[at : at + wire.CHUNK_BYTES]
                        await self._channel.send(wire.frame(wire.FILE, 0, piece))
                await self._channel.send(wire.frame(wire.LISTEN, 0, wire.COUNT.pack(port)))
                while not self._frames:
                    await self._read()
            except OSError:
                raise self._lost("does not run") from None
            frame = self._frames.popleft()
            if (frame.kind, frame.call, frame.body) != (wire.READY, 0, b""):
                raise self._lost(_reason(frame))
            return
        raise self._lost("did not start in time")

    async def run(self, serve: Callable[[Carried], Awaitable[None]]) -> None:
        """Hand every connection to `serve`, each in a task of its own, until the forwarder is gone.

        Raises:
            TunnelLostError: it is.
        """
        lost: TunnelLostError | None = None
        async with anyio.create_task_group() as group:
            try:
                group.start_soon(self._write)
                while True:
                    while self._frames:
                        carried = self._dispatch(self._frames.popleft())
                        if carried is not None:
                            group.start_soon(self._served, serve, carried)
                    await self._read()
            except TunnelLostError as exc:
                lost = exc
            except MalformedError as exc:
                lost = self._lost(f"sent {exc}")
            for one in self._carried.values():
                one.lose()
            group.cancel_scope.cancel()
        if lost is not None:
            raise lost

    async def aclose(self) -> None:
        """End the forwarder."""
        await self._channel.aclose()

    def put(self, kind: int, number: int, body: bytes = b"") -> None:
        """Queue a frame; the window bounds how much can be queued."""
        self._unsent.append(wire.frame(kind, number, body))
        self._wanted.set()

    async def flushed(self) -> None:
        """Wait until what is queued now has been written."""
        await self._written.wait()

    async def _served(self, serve: Callable[[Carried], Awaitable[None]], carried: Carried) -> None:
        try:
            with carried.serving:
                await serve(carried)
        finally:
            carried.close()
            self._orphans.pop(carried.number, None)

    async def _write(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            together, self._unsent = b"".join(self._unsent), []
            written, self._written = self._written, anyio.Event()
            # Shielded: aiohttp's drain hands one future to all who wait, and is not to be left half way.
            with anyio.move_on_after(WRITE_S, shield=True) as scope:
                try:
                    await self._channel.send(together)
                except OSError:
                    return  # the reader sees the end as well
            if scope.cancelled_caught:
                await self._channel.aclose()
                return
            written.set()

    async def _read(self) -> None:
        data = await self._channel.receive()
        if not data:
            raise self._lost("was killed or ended")
        try:
            self._frames += self._reader.feed(data)
        except MalformedError as exc:
            raise self._lost(f"sent {exc}") from exc

    def _dispatch(self, frame: Frame) -> Carried | None:
        """Give a frame to its connection; the connection if this is its first.

        Raises:
            MalformedError: it has none, or does not fit.
        """
        if frame.kind == wire.OPEN and frame.call > self._last and not frame.body:
            if len(self._carried) >= wire.MAX_CONNECTIONS:
                raise MalformedError("more connections than there may be")
            self._last = frame.call
            carried = self._carried[frame.call] = Carried(self, frame.call)
            return carried
        if frame.call not in self._carried:
            raise MalformedError(f"a frame of kind {frame.kind} for a connection that is not there")
        self._carried[frame.call].take(frame.kind, frame.body)
        if frame.kind == wire.CLOSE:
            self._orphan(self._carried.pop(frame.call))
        return None

    def _orphan(self, carried: Carried) -> None:
        """Its tool has closed it."""
        if not carried.closed:
            self._orphans[carried.number] = carried
        if len(self._orphans) > MAX_ORPHANS:
            self._orphans.pop(next(iter(self._orphans))).serving.cancel()

    def _lost(self, reason: str) -> TunnelLostError:
        said = self._channel.diagnostics()
        return TunnelLostError(f"{reason}; it said: {said}" if said else reason)


def _reason(frame: Frame) -> str:
    if frame.kind != wire.FAILED or frame.call != 0:
        return "sent what it never sends"
    text = frame.body[: wire.MAX_TEXT_BYTES].decode("utf-8", "replace")
    return "cannot work: " + "".join(char if char.isprintable() else " " for char in text)
