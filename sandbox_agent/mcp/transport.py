"""JSON-RPC in lines over the standard streams of a program, wherever that runs: in a container, or on this machine.

The program's output is not trusted: a line has a size, and what is no message is passed over, up to a number of lines.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sandbox_agent.errors import SandboxError
from sandbox_agent.sandboxes.base import MIB, Stream

MAX_LINE_BYTES = 16 * MIB
MAX_NOISE_LINES = 10_000
"""Lines that are no messages, before the server is given up."""

MAX_UNSENT = 64
"""Messages that wait for a server that does not read, without anybody waiting for that."""

WRITE_S = 20.0
"""For a server to read one message."""

END_S = 2.0
"""For a program whose input was closed to end by itself."""

_TOLD_CHARS = 200

Opening = Callable[[], Awaitable[Stream]]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Wire:
    """One program and what is known of its end. Enter it to start the program; it is ended on the way out."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._noise: list[str] = []
        self.why_ended: str | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams, None]:
        """The streams that `mcp.Client` wants.

        Raises:
            OSError, SandboxError: the program cannot be started.
        """
        stream = await self._opening()
        heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](MAX_UNSENT)
        async with heard, to_send, anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, stream, heard)
            tasks.start_soon(self._write, stream, to_send, heard)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()
                    outgoing.close()
                    await _end(stream)
                    tasks.cancel_scope.cancel()

    async def _read(self, stream: Stream, heard: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        rest = bytearray()
        noise = 0
        async with heard:
            try:
                while True:
                    chunk = await stream.receive()
                    if not chunk:
                        break
                    rest += chunk
                    lines: list[bytearray] = []
                    if b"\n" in chunk:
                        *lines, rest = rest.split(b"\n")
                    for line in lines:
                        message = _message(bytes(line))
                        if message is not None:
                            await heard.send(message)
                        elif line.strip():
                            noise += 1
                            self._note(bytes(line))
                    if len(rest) > MAX_LINE_BYTES or noise > MAX_NOISE_LINES:
                        what = "a line without an end" if len(rest) > MAX_LINE_BYTES else "nothing but noise"
                        self.why_ended = f"it wrote {what}, and was ended"
                        return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # nobody listens any more
            except SandboxError as exc:
                self.why_ended = f"its container is gone ({exc})"
                return
            await self._note_end(stream)

    async def _note_end(self, stream: Stream) -> None:
        with anyio.move_on_after(END_S):
            code = await stream.exit_code()
            words = {126: "; it cannot be run", 127: "; there is no such program where it would run"}.get(code, "")
            said = f"; it said: {self._noise[-1]}" if self._noise else ""
            self.why_ended = f"its program ended with exit code {code}{words}{said}"

    def _note(self, line: bytes) -> None:
        text = line[:_TOLD_CHARS].decode("utf-8", "replace").strip()
        self._noise = [*self._noise[-4:], text]

    async def _write(
        self,
        stream: Stream,
        to_send: MemoryObjectReceiveStream[SessionMessage],
        heard: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with to_send:
            try:
                async for message in to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    with anyio.fail_after(WRITE_S):
                        await stream.send(text.encode("utf-8", "replace") + b"\n")
            except TimeoutError:
                self.why_ended = f"it did not read what it was sent within {WRITE_S:g} s, and was ended"
                heard.close()
            except (OSError, SandboxError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                heard.close()  # else a request would wait for an answer that cannot come


async def _end(stream: Stream) -> None:
    with contextlib.suppress(OSError, SandboxError), anyio.move_on_after(END_S):
        await stream.send_eof()
        await stream.exit_code()
    with contextlib.suppress(OSError, SandboxError):
        await stream.aclose()


def _message(line: bytes) -> SessionMessage | None:
    adapter = mcp_types.jsonrpc_message_adapter
    try:
        try:
            return SessionMessage(adapter.validate_json(line, by_name=False))
        except ValidationError:
            return SessionMessage(adapter.validate_python(_parsed(line), by_name=False))
    except (ValidationError, ValueError, RecursionError):
        return None


def _parsed(line: bytes) -> Any:
    """JSON that nests deeper than the first parser takes, or has halves of surrogate pairs: programs do write such, and
    whoever waits for the answer should not wait for ever.

    Raises:
        ValueError, RecursionError: it is none.
    """
    if not line.startswith(b"{"):
        raise ValueError("no object")
    whole = json.dumps(json.loads(line), ensure_ascii=False, allow_nan=False)
    return json.loads(whole.encode("utf-8", "replace"))
