"""One runner as the host sees it: frames down, hostile bytes up, and the waiting in between.

There is no reader task: a sandbox is started, used and closed by different tasks, so no task group could own one.
Instead, of the tasks that wait for an answer one reads for all of them and hands over when it has its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import anyio.lowlevel

from sandbox_agent.sandboxes.calls import Call
from sandbox_agent.sandboxes.frames import Frame, FrameReader, MalformedError
from sandbox_agent.sandboxes.runner import wire

START_S = 15.0
"""From the exec to the runner's first word."""

HEARTBEAT_S = 5.0
"""Silence while something is awaited, after which the runner is asked whether it is there."""

MAX_SILENT_BEATS = 3
_ROOM_BYTES = wire.WINDOW_BYTES - wire.CHUNK_BYTES
END_CALL_S = 10.0
"""How long a killed call may take to say that it is over."""


class Channel(Protocol):
    """The byte stream to a program in the container. `receive` must lose nothing when cancelled."""

    async def send(self, data: bytes) -> None:
        """Raises OSError when the program is gone."""
        ...

    async def receive(self) -> bytes:
        """The next bytes of its stdout, b"" at the end."""
        ...

    async def aclose(self) -> None: ...

    def diagnostics(self) -> str:
        """The last of what it wrote to stderr."""
        ...


class RunnerGoneError(Exception):
    """The runner ended, was killed, or sent what no runner sends; the text says which.

    `out_of_memory` is whether it went when the memory limit was reached.
    """

    def __init__(self, text: str | None, *, out_of_memory: bool = False) -> None:
        super().__init__(text)
        self.out_of_memory = out_of_memory


class Connection:
    """The calls of one runner. Whatever goes wrong with it ends all of them, see `gone`."""

    def __init__(self, channel: Channel, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._channel = channel
        self._heartbeat_s = heartbeat_s
        self._reader = FrameReader()
        self._calls: dict[int, Call] = {}
        self._waiters: dict[anyio.Event, int] = {}
        self._next_call = 1
        self._reading = False
        self._sending = False
        self._unsent: list[bytes] = []
        self._silent_beats = 0
        self._pings = 0
        self.version: str | None = None
        self.gone: str | None = None
        self.out_of_memory = False

    async def start(self, source: bytes) -> None:
        """Send the program and wait until it speaks.

        Raises:
            RunnerGoneError: it does not start.
        """
        with anyio.move_on_after(START_S) as scope:
            await self._send(source)
            await self._wait(0, lambda: self.version is not None)
        if scope.cancelled_caught:
            self._end("did not start in time")
            raise RunnerGoneError(self.gone)

    async def aclose(self) -> None:
        """Close the stream; a runner that still lives ends with it."""
        self._end("was closed")
        await self._channel.aclose()

    def add(self, call: Call) -> int:
        """Give the call its number."""
        number = self._next_call
        self._next_call += 1
        self._calls[number] = call
        return number

    async def request(self, number: int, fields: Mapping[str, object], data: bytes) -> None:
        """Send a call's request, with the bytes that go along at once."""
        text = json.dumps(fields).encode()
        body = wire.COUNT.pack(len(text)) + text + data
        pieces = [body[at : at + wire.CHUNK_BYTES] for at in range(0, len(body), wire.CHUNK_BYTES)]
        sent = [wire.frame(wire.REQUEST_PART, number, piece) for piece in pieces[:-1]]
        await self._send(b"".join([*sent, wire.frame(wire.REQUEST, number, pieces[-1])]))

    async def send(self, number: int, kind: int, body: bytes = b"") -> None:
        await self._send(wire.frame(kind, number, body))

    async def feed(self, number: int, data: bytes) -> None:
        """Send bytes to the call's process as fast as it takes them; returns early when it takes no more."""
        call = self._calls[number]
        for at in range(0, len(data), wire.CHUNK_BYTES):
            piece = data[at : at + wire.CHUNK_BYTES]
            await self.wait(number, lambda: call.stdin_closed or call.unacknowledged <= _ROOM_BYTES)
            if call.finished or call.stdin_closed:
                return
            call.unacknowledged += len(piece)
            await self.send(number, wire.STDIN, piece)

    async def wait(self, number: int, ready: Callable[[], bool] = lambda: False) -> None:
        """Until `ready`, or the call has had its last frame.

        Raises:
            RunnerGoneError: neither will happen any more.
        """
        call = self._calls[number]
        await self._wait(number, lambda: call.finished or ready())

    async def drop(self, number: int) -> None:
        """Forget a call. One that has not ended is killed first: its process must not outlive our interest in it."""
        call = self._calls[number]
        if not call.finished and self.gone is None:
            with anyio.move_on_after(END_CALL_S, shield=True) as scope:
                try:
                    await self.send(number, wire.KILL)
                    await self.wait(number)
                except RunnerGoneError:
                    pass
            if scope.cancelled_caught:
                self._end("did not end a call that was given up")
        del self._calls[number]

    def give_up(self, reason: str) -> None:
        """The runner failed its caller: count it as dead."""
        self._end(reason)

    async def _send(self, data: bytes) -> None:
        """Queue the bytes, and write what is queued unless another task is at it already.

        The yield before lets calls that begin together go out together: one write costs the engine 0.1 to 0.3 ms.
        """
        self._raise_if_gone()
        self._unsent.append(data)
        if self._sending:
            return
        self._sending = True
        # Shielded, because aiohttp's drain hands one future to all who wait: cancelling it would break the next.
        with anyio.move_on_after(self._heartbeat_s * MAX_SILENT_BEATS, shield=True) as scope:
            try:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                while self._unsent:
                    together = b"".join(self._unsent)
                    self._unsent.clear()
                    await self._channel.send(together)
            except OSError:
                self._end("is gone")
            finally:
                self._sending = False
        if scope.cancelled_caught:
            self._end("takes no more requests")
        self._raise_if_gone()

    async def _wait(self, number: int, ready: Callable[[], bool]) -> None:
        try:
            while not ready():
                self._raise_if_gone()
                if self._reading:
                    event = anyio.Event()
                    self._waiters[event] = number
                    try:
                        await event.wait()
                    finally:
                        del self._waiters[event]
                else:
                    await self._read()
        finally:
            if not self._reading:
                self._hand_over()

    async def _read(self) -> None:
        """Read once, for everybody."""
        self._reading = True
        data = b""
        try:
            with anyio.move_on_after(self._heartbeat_s) as scope:
                data = await self._channel.receive()
        finally:
            self._reading = False
        if scope.cancelled_caught:
            await self._beat()
            return
        self._silent_beats = 0
        if not data:
            self._end("was killed or ended")
            return
        try:
            for frame in self._reader.feed(data):
                self._dispatch(frame)
        except MalformedError as exc:
            self._end(f"sent {exc}")

    async def _beat(self) -> None:
        self._silent_beats += 1
        if self._silent_beats > MAX_SILENT_BEATS:
            self._end("does not answer")
        else:
            self._pings += 1
            await self._send(wire.frame(wire.PING, 0))

    def _dispatch(self, frame: Frame) -> None:
        if frame.call == 0 and frame.kind == wire.HELLO and self.version is None and len(frame.body) < 20:
            self.version = frame.body.decode("ascii", "replace")
        elif frame.call == 0 and frame.kind == wire.PONG and self._pings:
            self._pings -= 1
        elif frame.call in self._calls:
            self._calls[frame.call].take(frame.kind, frame.body)
        else:
            raise MalformedError(f"a frame of kind {frame.kind} for a call that nobody made")
        for event, number in self._waiters.items():
            if number == frame.call:
                event.set()

    def _hand_over(self) -> None:
        """Wake one that waits, so that it reads on."""
        for event in self._waiters:
            if not event.is_set():
                event.set()
                return

    def _end(self, reason: str) -> None:
        if self.gone is None:
            said = self._channel.diagnostics()
            self.gone = f"{reason}; it said: {said}" if said else reason
        for event in self._waiters:
            event.set()

    def _raise_if_gone(self) -> None:
        if self.gone is not None:
            raise RunnerGoneError(self.gone)
