"""A `Stream` over the resident runner."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping

from sandbox_agent.sandboxes.calls import StreamCall
from sandbox_agent.sandboxes.connection import Connection, RunnerGoneError
from sandbox_agent.sandboxes.runner import wire
from sandbox_agent.sandboxes.runners import KILLED, Runners


class ResidentStream:
    """A `Stream` over the runner. When the runner is killed it ends, with exit code 137."""

    def __init__(self, runners: Runners, connection: Connection) -> None:
        self.call = StreamCall()
        self._runners = runners
        self._connection = connection
        self.number = connection.add(self.call)
        self._taken = 0
        self._eof = False
        self._closed = False

    async def start(self, request: Mapping[str, object]) -> None:
        """Ask for the program, and wait until it has been started or the call has failed."""
        try:
            await self._guarded(lambda: self._connection.request(self.number, request, b""))
            if not self._over():
                await self._guarded(lambda: self._connection.wait(self.number, lambda: self.call.started))
        except BaseException:
            await self.aclose()
            raise

    async def send(self, data: bytes) -> None:
        """See `Stream.send`."""
        self._require_stdin()
        if not await self._guarded(lambda: self._connection.feed(self.number, data)):
            raise BrokenPipeError(errno.EPIPE, "the runner was killed")
        self._require_stdin()

    async def send_eof(self) -> None:
        """See `Stream.send_eof`."""
        if not self._eof and not self._over():
            self._eof = True
            await self._guarded(lambda: self._connection.send(self.number, wire.STDIN_EOF))

    async def receive(self) -> bytes:
        """See `Stream.receive`."""
        if not self.call.chunks and not self._over():
            await self._guarded(lambda: self._connection.wait(self.number, lambda: bool(self.call.chunks)))
        if not self.call.chunks:
            return b""
        data = self.call.chunks.popleft()
        self._taken += len(data)
        if self._taken >= wire.CHUNK_BYTES and not self._over():
            granted, self._taken = self._taken, 0
            self.call.credit += granted
            body = wire.COUNT.pack(granted)
            await self._guarded(lambda: self._connection.send(self.number, wire.CREDIT, body))
        return data

    async def exit_code(self) -> int:
        """See `Stream.exit_code`."""
        if not self._over():
            await self._guarded(lambda: self._connection.wait(self.number))
        return KILLED if self.call.ended is None else self.call.ended.exit_code

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        if not self._closed:
            self._closed = True
            await self._connection.drop(self.number)

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> bool:
        """Do it; False when the runner is gone."""
        try:
            await act()
        except RunnerGoneError:
            await self._runners.recover(self._connection)
            return False
        return True

    def _over(self) -> bool:
        return self._closed or self.call.finished or self._connection.gone is not None

    def _require_stdin(self) -> None:
        if self._eof or self.call.stdin_closed or self._over():
            raise BrokenPipeError(errno.EPIPE, "the program has ended or its stdin is closed")


class EndedStream:
    """A `Stream` to a program that never ran; only its exit code tells."""

    def __init__(self, exit_code: int) -> None:
        self._exit_code = exit_code

    async def send(self, data: bytes) -> None:
        """See `Stream.send`."""
        raise BrokenPipeError(errno.EPIPE, "the program did not start")

    async def send_eof(self) -> None:
        """See `Stream.send_eof`."""

    async def receive(self) -> bytes:
        """See `Stream.receive`."""
        return b""

    async def exit_code(self) -> int:
        """See `Stream.exit_code`."""
        return self._exit_code

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
