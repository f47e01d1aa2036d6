"""A program started by a Docker exec, as a byte stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiodocker
import aiodocker.exceptions
import aiohttp
import anyio

from sandbox_agent.sandboxes.runner.kept import KeptOutput

_STDERR = 2
_SAID_BYTES = 600


class ExecStream:
    """A `Channel`: stdin and stdout of an exec; of its stderr only the last words are kept."""

    def __init__(self, execution: aiodocker.execs.Exec, stream: aiodocker.stream.Stream) -> None:
        self._execution = execution
        self._stream = stream
        self._said = KeptOutput(_SAID_BYTES)
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Raises OSError when the program, or the engine, is gone."""
        try:
            await self._stream.write_in(data)
        except (RuntimeError, AssertionError, aiohttp.ClientError, OSError) as exc:
            raise BrokenPipeError(str(exc)) from exc

    def send_eof(self) -> None:
        """Close its stdin."""
        transport = self._transport()
        if transport is not None and transport.can_write_eof():
            transport.write_eof()

    async def receive_either(self) -> tuple[int, bytes] | None:
        """The next bytes of stdout (1) or stderr (2), None at the end."""
        try:
            message = await self._stream.read_out()
        except (aiohttp.ClientError, OSError):
            return None
        return None if message is None else (message.stream, message.data)

    async def receive(self) -> bytes:
        """The next bytes of its stdout, b"" at the end."""
        while True:
            message = await self.receive_either()
            if message is None:
                return b""
            if message[0] != _STDERR:
                return message[1]
            self._said.add(message[1])

    async def exit_code(self) -> int | None:
        """After the end; None where the engine does not know (yet)."""
        try:
            fields = await self._execution.inspect()
        except aiodocker.exceptions.DockerError:
            return None  # the exec went with its container
        code = fields.get("ExitCode")
        return code if isinstance(code, int) else None

    def diagnostics(self) -> str:
        """Its last words on one line, without anything that could act on a terminal."""
        text = self._said.value().decode("utf-8", "replace")
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())[-300:]

    async def aclose(self) -> None:
        """Let go of it. What was sent and not taken yet is dropped: its connection would else stay until it is."""
        if not self._closed:
            self._closed = True
            transport = self._transport()
            with anyio.CancelScope(shield=True):
                await self._stream.close()
            if transport is not None and transport.get_write_buffer_size():
                transport.abort()

    def _transport(self) -> asyncio.Transport | None:
        """What is under it; aiodocker has no public way there."""
        response = self._stream._resp
        return None if response is None or response.connection is None else response.connection.transport


async def open_exec(
    container: aiodocker.containers.DockerContainer,
    argv: Sequence[str],
    *,
    user: str,
    stdin: bool,
    workdir: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ExecStream:
    """Start a program in the container.

    Raises:
        aiodocker.exceptions.DockerError: the engine refuses, for example because the container does not run.
    """
    execution = await container.exec(
        list(argv), stdin=stdin, user=user, workdir=workdir, environment=dict(env) if env else None
    )
    stream = execution.start(detach=False)
    await stream._init()
    return ExecStream(execution, stream)
