"""Without a runner: the output of a call, sent to a second program in the container, which writes it to a file."""

from __future__ import annotations

import anyio

from sandbox_agent.sandboxes.base import LIVE_MAX_BYTES
from sandbox_agent.sandboxes.container import RunningContainer
from sandbox_agent.sandboxes.exec_stream import ExecStream
from sandbox_agent.sandboxes.runner.kept import KeptOutput, rest

LATER_EXEC_S = 10.0
"""How long an exec may take to do its part: starting one can take seconds where much runs."""

_CHUNK_BYTES = 64 * 1024

_SCRIPT = """
umask 077
mkdir -p -- "${1%/*}" && set -C && exec 3>"$1" && echo ok && exec cat >&3
"""
"""Makes the file, which must be new, says so, and writes to it what it is sent."""


class LiveFile:
    """The file that output is written to as it comes, bounded; `path` is None where there is none."""

    def __init__(self, container: RunningContainer, path: str | None, kept: KeptOutput) -> None:
        self.path: str | None = None
        self.size_bytes = 0
        self._container = container
        self._wanted = path
        self._kept = kept
        self._stream: ExecStream | None = None

    async def begin(self) -> None:
        """Make it; a file that is there already stays as it is."""
        if self._wanted is None:
            return
        self._stream = await self._container.open_program(["sh", "-c", _SCRIPT, "sh", self._wanted], stdin=True)
        if await self._stream.receive() == b"ok\n":
            self.path = self._wanted

    async def write(self, data: bytes) -> None:
        """Write what there is room for."""
        await self._send(data[: max(0, LIVE_MAX_BYTES - self.size_bytes)])

    async def aclose(self) -> None:
        """Write the end of what had no room, and wait until all is in the file."""
        if self._stream is None:
            return
        with anyio.move_on_after(LATER_EXEC_S, shield=True):
            if self.size_bytes >= LIVE_MAX_BYTES:
                await self._send(rest(self._kept, LIVE_MAX_BYTES))
            self._stream.send_eof()
            while self.path is not None and await self._stream.receive():
                pass
        await self._stream.aclose()

    async def _send(self, data: bytes) -> None:
        if self._stream is None or self.path is None or not data:
            return
        try:
            await send(self._stream, data)
        except BrokenPipeError:  # somebody in there killed it: the file has what came until then
            stream, self._stream = self._stream, None
            await stream.aclose()
            return
        self.size_bytes += len(data)


async def send(stream: ExecStream, data: bytes) -> None:
    """Send in pieces that the engine takes. Raises BrokenPipeError when the program is gone."""
    for at in range(0, len(data), _CHUNK_BYTES):
        await stream.send(data[at : at + _CHUNK_BYTES])
