"""A process of the tools' uid that attacks the runner again and again, and a sandbox that says when it was hit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import docker.errors
from sandbox_rig import Rig

from sandbox_agent.sandboxes.base import ExecResult, FileContent, PathInfo, SandboxInfo, Stream
from sandbox_agent.sandboxes.frames import RunnerKilledError

BREACH = "/workspace/.breach"

PROGRAM = Path(__file__).with_name("hostile_program.py").read_text()


SUICIDE = "kill -9 $$"
"""The one command of the suite that kills itself."""


class RunnerWasHitError(Exception):
    """A call ended with the exit code or the error of one whose runner, keeper or command was killed."""


@asynccontextmanager
async def hostility(rig: Rig) -> AsyncIterator[None]:
    """The process is alive, and started again whenever clearing the sandbox has ended it."""

    async def haunt() -> None:
        for turn in itertools.count():
            with contextlib.suppress(docker.errors.APIError):  # the container is just being started again
                await rig.outside(["python3", "-c", PROGRAM, BREACH, str(turn)])

    async with anyio.create_task_group() as group:
        group.start_soon(haunt)
        yield
        group.cancel_scope.cancel()


class Watched:
    """A sandbox whose calls raise `RunnerWasHitError` where they give that error, and are otherwise as they are."""

    def __init__(self, rig: Rig) -> None:
        self._sandbox = rig.sandbox

    async def start(self) -> SandboxInfo:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        result = await self._sandbox.exec(argv, **options)
        # Also without the sandbox's text: a command between its fork and its exec still looks like the keeper that
        # starts it, and may itself be the one that is killed.
        if result.exit_code == 137 and not result.timed_out and SUICIDE not in argv[-1]:
            raise RunnerWasHitError
        return result

    async def exec_apart(self, argv: Sequence[str], **options: Any) -> ExecResult:
        return await self._sandbox.exec_apart(argv, **options)

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Stream:
        return WatchedStream(await self._sandbox.open(argv, cwd=cwd, env=env))

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        try:
            return await self._sandbox.resolve(paths)
        except RunnerKilledError as exc:
            raise RunnerWasHitError from exc

    async def read_file(self, path: str, **options: Any) -> FileContent:
        try:
            return await self._sandbox.read_file(path, **options)
        except RunnerKilledError as exc:
            raise RunnerWasHitError from exc

    async def replace_file(self, path: str, data: bytes, **options: Any) -> FileContent:
        try:
            return await self._sandbox.replace_file(path, data, **options)
        except RunnerKilledError as exc:
            raise RunnerWasHitError from exc


class WatchedStream:
    """A stream whose end by a killed runner is the same error."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except BrokenPipeError:
            await self.exit_code()
            raise

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive(self) -> bytes:
        data = await self._stream.receive()
        if not data:
            await self.exit_code()
        return data

    async def exit_code(self) -> int:
        code = await self._stream.exit_code()
        if code == 137:
            raise RunnerWasHitError
        return code

    async def aclose(self) -> None:
        await self._stream.aclose()
