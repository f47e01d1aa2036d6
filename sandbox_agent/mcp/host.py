"""Programs of MCP servers on this machine: what they find there, and how they are started and ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

from sandbox_agent.mcp import guard

MARK = "SANDBOX_AGENT_MCP"
DEATH_S = 1.5
"""For the guard to have killed everything."""


@dataclass(frozen=True, slots=True)
class HostGround:
    """What a program on this machine starts with: of the person's environment no more than this, and this folder, which
    is none that the agent can write to: programs look for parts of themselves where they start."""

    env: Mapping[str, str]
    folder: Path


class HostProcess:
    """A program on this machine as a `Stream`, with a guard over it. Its standard error goes nowhere."""

    def __init__(self, process: Process, life: int) -> None:
        self._process = process
        self._life: int | None = life

    @classmethod
    async def start(cls, command: Sequence[str], ground: HostGround, env: Mapping[str, str]) -> HostProcess:
        """Start it, in a process group of its own.

        Raises:
            OSError: it cannot be started.
        """
        mark = secrets.token_hex(16)
        end, life = os.pipe()
        try:
            process = await anyio.open_process(
                [sys.executable, "-I", "-S", guard.__file__, str(end), mark, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**ground.env, **env, MARK: mark},
                cwd=ground.folder,
                start_new_session=True,
                pass_fds=(end,),
            )
        except BaseException:
            os.close(life)
            raise
        finally:
            os.close(end)
        return cls(process, life)

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise BrokenPipeError("the program reads no more") from exc

    async def send_eof(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.aclose()

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return b""

    async def exit_code(self) -> int:
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def aclose(self) -> None:
        """Kill it with everything of its group, and what carries its mark."""
        if self._life is not None:
            os.close(self._life)
            self._life = None
        with anyio.move_on_after(DEATH_S):
            await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.aclose()
