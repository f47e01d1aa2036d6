"""The fallback without a runner: one Docker exec per call, for images that have no Python.

About 60 ms a call. A shell script around the command gives it its input, its deadline (`timeout -k`), and afterwards
kills what it left behind, known by a variable in its environment. Output is written to a file only as it comes, by a
second program; there is no spill file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Mapping, Sequence

import anyio

from sandbox_agent.sandboxes import files
from sandbox_agent.sandboxes.arguments import (
    MAX_COMMAND_BYTES,
    check_command,
    check_output_file,
    check_path,
    check_stdin,
)
from sandbox_agent.sandboxes.base import (
    DEFAULT_MAX_OUTPUT_BYTES,
    KILL_GRACE_S,
    ExecResult,
    FileContent,
    PathInfo,
    Stream,
)
from sandbox_agent.sandboxes.container import RunningContainer
from sandbox_agent.sandboxes.exec_stream import ExecStream
from sandbox_agent.sandboxes.perexec_live import LATER_EXEC_S, LiveFile, send
from sandbox_agent.sandboxes.perexec_script import SWEEP, WRAP, shell_word, undecoded
from sandbox_agent.sandboxes.resident import failed
from sandbox_agent.sandboxes.runner.kept import KeptOutput
from sandbox_agent.types import WORKSPACE_MOUNT

_TIMEOUT_CODE = 124
_TERMINATED = 143
_KILLED = 137
_EXIT_CODE_TRIES = 100
_EXIT_CODE_WAIT_S = 0.02

_CWD_ERRORS = {b"missing": errno.ENOENT, b"notdir": errno.ENOTDIR, b"denied": errno.EACCES}


class PerExec:
    """The `Sandbox` verbs, each over Docker execs of its own."""

    def __init__(self, container: RunningContainer) -> None:
        self._container = container

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """See `Sandbox.end_all`; nothing is spared."""
        await self._container.clear()

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        merge_stderr: bool = False,
        spill_path: str | None = None,
        live_path: str | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        size = check_command(argv, env)
        check_stdin(stdin)
        check_output_file(spill_path, live_path)
        if size > MAX_COMMAND_BYTES:
            return failed(126, f"{argv[0]}: Argument list too long", merge_stderr, max_output_bytes)
        started_s = time.monotonic()
        call = secrets.token_hex(8)
        form = "merge" if merge_stderr else "plain"
        out, err = KeptOutput(max_output_bytes), KeptOutput(max_output_bytes)
        stream = await self._started(call, argv, cwd, env, timeout_s, str(len(stdin)), form)
        live = LiveFile(self._container, live_path, out)
        over = False
        try:
            deadline_s = None if timeout_s is None else timeout_s + KILL_GRACE_S + LATER_EXEC_S
            with anyio.move_on_after(deadline_s):
                exit_code = await self._run(stream, cwd, stdin, out, err, live)
                over = True
        finally:
            if not over:
                await self._kill(call)
            await stream.aclose()
            await live.aclose()
        if not over:
            exit_code = _KILLED
        duration_s = time.monotonic() - started_s
        timed_out = timeout_s is not None and duration_s >= timeout_s and exit_code in (_TIMEOUT_CODE, _KILLED)
        return ExecResult(
            _TERMINATED if timed_out and exit_code == _TIMEOUT_CODE else exit_code,
            out.value(),
            err.value(),
            timed_out,
            out.total_bytes,
            err.total_bytes,
            duration_s,
            spill_path=live.path,
            spill_bytes=live.size_bytes,
        )

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> PerExecStream:
        """See `Sandbox.open`."""
        check_command(argv, env)
        call = secrets.token_hex(8)
        stream = await self._started(call, argv, cwd, env, None, "all", "open")
        first = await stream.receive()
        try:
            rest = _after_first_line(first, cwd)
        except OSError:
            await stream.aclose()
            raise
        return PerExecStream(self, stream, call, rest)

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        """See `Sandbox.resolve`."""
        return await files.resolve(self.exec, paths)

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.read_file`."""
        return await files.read_file(self.exec, path, offset=offset, limit_bytes=limit_bytes, resolved=resolved)

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.replace_file`."""
        return await files.replace_file(self.exec, path, data, expected_sha256=expected_sha256, resolved=resolved)

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def exit_code(self, stream: ExecStream) -> int:
        """The engine learns it a little after the stream's end.

        Raises:
            SandboxDiedError: the container ended.
        """
        for _ in range(_EXIT_CODE_TRIES):
            code = await stream.exit_code()
            if code is not None:
                if code == _KILLED:
                    await self._container.raise_if_dead()
                return code
            await anyio.sleep(_EXIT_CODE_WAIT_S)
        await self._container.raise_if_dead()
        return _KILLED

    async def _started(
        self,
        call: str,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_s: float | None,
        size: str,
        form: str,
    ) -> ExecStream:
        folder = WORKSPACE_MOUNT if cwd is None else cwd
        check_path(folder)
        limit = "" if timeout_s is None else f"{timeout_s:g}"
        words = ""
        if undecoded(folder) or any(map(undecoded, argv)):
            # The API is JSON, which holds no such bytes: the shell makes them.
            words = f"cwd={shell_word(folder)}; set -- {' '.join(map(shell_word, argv))}"
            folder, argv = "", []
        command = ["sh", "-c", WRAP, "sh", folder, limit, f"{KILL_GRACE_S:g}", size, call, form, words, *argv]
        return await self._container.open_program(command, stdin=size != "0", env=env)

    async def _run(
        self, stream: ExecStream, cwd: str | None, stdin: bytes, out: KeptOutput, err: KeptOutput, live: LiveFile
    ) -> int:
        kept = {1: out, 2: err}
        note = b""
        while b"\n" not in note and (message := await stream.receive_either()) is not None:
            if message[0] == 1:
                note += message[1]
            else:
                err.add(message[1])
        first = _after_first_line(note, cwd)
        await live.begin()
        out.add(first)
        await live.write(first)
        async with anyio.create_task_group() as group:
            if stdin:
                group.start_soon(_send_what_is_taken, stream, stdin)
            while (message := await stream.receive_either()) is not None:
                kept[message[0]].add(message[1])
                if message[0] == 1:
                    await live.write(message[1])
            group.cancel_scope.cancel()
        return await self.exit_code(stream)

    async def _kill(self, call: str) -> None:
        """Kill everything that carries the call's mark; when that does not come to an end, everything."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(LATER_EXEC_S):
                script = f'{SWEEP} sweep "$1"'
                stream = await self._container.open_program(["sh", "-c", script, "sh", call], stdin=False)
                await stream.receive()
                await stream.aclose()
                return
            await self._container.clear()


class PerExecStream:
    """A `Stream` over a Docker exec; the engine holds the program back while nobody receives."""

    def __init__(self, owner: PerExec, stream: ExecStream, call: str, first: bytes) -> None:
        self._owner = owner
        self._stream = stream
        self._call = call
        self._first = first
        self._ended = False
        self._eof = False
        self._closed = False
        self._code: int | None = None

    async def send(self, data: bytes) -> None:
        """See `Stream.send`."""
        if self._ended or self._closed or self._eof:
            raise BrokenPipeError(errno.EPIPE, "the program has ended or its stdin is closed")
        await send(self._stream, data)

    async def send_eof(self) -> None:
        """See `Stream.send_eof`."""
        self._eof = True
        self._stream.send_eof()

    async def receive(self) -> bytes:
        """See `Stream.receive`."""
        if self._first:
            data, self._first = self._first, b""
            return data
        if self._ended or self._closed:
            return b""
        data = await self._stream.receive()
        self._ended = not data
        return data

    async def exit_code(self) -> int:
        """See `Stream.exit_code`. Output that nobody has received by then is dropped."""
        while self._code is None and not self._closed:
            if not await self.receive():
                self._code = await self._owner.exit_code(self._stream)
        return _KILLED if self._code is None else self._code

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        if not self._closed:
            self._closed = True
            if not self._ended:
                await self._owner._kill(self._call)
                # The shell around the program ends last; it has all of the command in its arguments.
                with anyio.move_on_after(LATER_EXEC_S, shield=True):
                    while await self._stream.receive_either() is not None:
                        pass
            await self._stream.aclose()


async def _send_what_is_taken(stream: ExecStream, data: bytes) -> None:
    """A command may end without reading all its input: that is no error."""
    with contextlib.suppress(BrokenPipeError):
        await send(stream, data)


def _after_first_line(data: bytes, cwd: str | None) -> bytes:
    """What follows the script's word on the working folder; the error if that is not a good one."""
    word, _, rest = data.partition(b"\n")
    if word in _CWD_ERRORS:
        number = _CWD_ERRORS[word]
        raise OSError(number, os.strerror(number), cwd or WORKSPACE_MOUNT)
    return rest
