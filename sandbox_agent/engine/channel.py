"""Frames to and from the hands in the container: starting them, and believing nothing they say beyond its form."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import anyio

from sandbox_agent.sandboxes.base import Sandbox, Stream
from sandbox_agent.sandboxes.program import INTERPRETERS, bundled
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.inside import wire

PACKAGE = "sandbox_agent.workspaces.inside"
MODULES = ("wire", "attributes", "below", "entry", "walk", "look", "put", "main")
"""In the order of their imports."""

MAX_FRAME_BYTES = 2 * wire.CHUNK
TOGETHER_BYTES = 64 * 1024
START_S = 20.0
IN_ALL_S = 900.0
"""For all frames of one answer: each may be in time, and whoever got at the process never comes to an end."""
TRIES = 3

T = TypeVar("T")


class HandsLostError(Exception):
    """The process in the container was killed, took too long, or said what it never says."""


class NoHandsError(Exception):
    """The image has no Python for it; the text says so."""


class Frame(NamedTuple):
    """One frame of the other side."""

    letter: bytes
    body: bytes


class Channel:
    """One process in the container, started when it is needed. Not for concurrent use."""

    def __init__(self, sandbox: Sandbox, *, in_all_s: float = IN_ALL_S) -> None:
        self._sandbox = sandbox
        self._in_all_s = in_all_s
        self._asked_at_s = time.monotonic()
        self.stream: Stream | None = None
        self._buffer = bytearray()
        self._waiting = bytearray()

    async def aclose(self) -> None:
        """End the process; the next `ready` starts another."""
        stream, self.stream = self.stream, None
        self._buffer.clear()
        self._waiting.clear()
        if stream is not None:
            await stream.aclose()

    async def ready(self) -> None:
        """Have a process that answers.

        Raises:
            NoHandsError: the image cannot run it.
            HandsLostError: it was killed as it started.
        """
        if self.stream is not None:
            return
        text = bundled((PACKAGE, MODULES))
        for interpreter in INTERPRETERS:
            stream = self.stream = await self._sandbox.open(
                [interpreter, "-I", "-S", "-c", text, WORKSPACE_MOUNT], cwd="/"
            )
            try:
                if (await self.receive(START_S)).letter == wire.HELLO:
                    return
                raise await self.malformed()
            except HandsLostError:
                code = await stream.exit_code()
                await self.aclose()
                if code not in (126, 127):
                    raise
        raise NoHandsError("the image has no python3, which checkpoints need")

    async def send(self, letter: bytes, body: bytes) -> None:
        """Send one frame, starting the process where there is none; with the next ones, at the latest at `receive`.

        Raises:
            HandsLostError, NoHandsError: see `ready`.
        """
        await self.ready()
        self._asked_at_s = time.monotonic()
        self._waiting += wire.HEADER.pack(len(body), letter) + body
        if len(self._waiting) > TOGETHER_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        try:
            if data and self.stream is not None:
                await self.stream.send(data)
        except BrokenPipeError as error:
            await self.aclose()
            raise HandsLostError("the process that takes checkpoints was killed") from error

    async def receive(self, timeout_s: float) -> Frame:
        """The next frame, `timeout_s` after the last one at most, and within the time for the whole answer.

        Raises:
            HandsLostError: the process is gone, too slow, or sent no frame.
        """
        if not self._waiting and (frame := await self._received()) is not None:
            return frame  # most of many small ones are here already
        most_s = min(timeout_s, max(0.0, self._asked_at_s + self._in_all_s - time.monotonic()))
        try:
            with anyio.fail_after(most_s):
                await self._flush()
                while (frame := await self._received()) is None:
                    await self._more()
                return frame
        except TimeoutError:
            await self.aclose()
            raise HandsLostError("the process that takes checkpoints did not answer in time") from None

    async def malformed(self) -> HandsLostError:
        """The error for an answer that does not fit; the process is not listened to any further."""
        await self.aclose()
        return HandsLostError("the process that takes checkpoints said what it never says; something interfered")

    async def _received(self) -> Frame | None:
        """The next frame if all of it is here."""
        if len(self._buffer) < wire.HEADER.size:
            return None
        size, letter = wire.HEADER.unpack_from(self._buffer)
        if size > MAX_FRAME_BYTES:
            raise await self.malformed()
        end = wire.HEADER.size + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[wire.HEADER.size : end])
        del self._buffer[:end]
        return Frame(letter, body)

    async def _more(self) -> None:
        chunk = await self.stream.receive() if self.stream is not None else b""
        if not chunk:
            if self.stream is not None and not self._buffer:
                raise HandsLostError("the process that takes checkpoints was killed")
            raise HandsLostError("the process that takes checkpoints ended in the middle of an answer")
        self._buffer += chunk


async def retried(act: Callable[[], Awaitable[T]], *, between: Callable[[], Awaitable[object]] | None = None) -> T:
    """Do something again when the process in the container was killed meanwhile, a few times.

    Args:
        act: what to do.
        between: what to do before it is done again.

    Raises:
        HandsLostError: it was killed each time.
    """
    for _ in range(TRIES - 1):
        try:
            return await act()
        except HandsLostError:
            if between is not None:
                with contextlib.suppress(HandsLostError):
                    await between()
    return await act()
