"""`FakeSandbox`: the `Sandbox` contract in memory, for unit tests of whatever works on a sandbox.

It passes the same conformance suite as the real ones (less what needs a kernel). Programs are Python functions,
see `sandboxes.fake_shell`; files live in `sandbox.files`; `sandbox.calls` lists what was asked.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from sandbox_agent.errors import SandboxDiedError, SandboxStartError
from sandbox_agent.sandboxes.arguments import (
    MAX_COMMAND_BYTES,
    check_command,
    check_output_file,
    check_path,
    check_stdin,
)
from sandbox_agent.sandboxes.base import (
    DEFAULT_MAX_OUTPUT_BYTES,
    ExecResult,
    FileContent,
    PathInfo,
    SandboxInfo,
    Stream,
)
from sandbox_agent.sandboxes.fake_files import FakeDirectory, FakeFiles
from sandbox_agent.sandboxes.fake_shell import LiveFile, Printed, Program, ProgramCall, builtin_programs, run_program
from sandbox_agent.sandboxes.runner.kept import KeptOutput
from sandbox_agent.types import WORKSPACE_MOUNT

T = TypeVar("T")

_ENV = {"HOME": "/home/agent", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", "USER": "agent"}
_TERMINATED = 128 + 15
_KILLED = 128 + 9


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One call as it was asked: the verb, its argv or paths, and everything else by name."""

    verb: str
    argv: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=dict)


class FakeSandbox:
    """A `Sandbox` in memory.

    `programs` are added to (or replace) the built-in ones by the base name of argv[0]. `fail_next` makes the next
    call raise; `die` ends the sandbox under every open and later call.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, programs: Mapping[str, Program] | None = None) -> None:
        self.files = FakeFiles(files)
        self.files.mkdir(WORKSPACE_MOUNT)
        self.files.mkdir("/tmp")
        self.programs: dict[str, Program] = {**builtin_programs(), **(programs or {})}
        self.calls: list[FakeCall] = []
        self.running = 0
        self.most_running = 0
        self.restarts = 0
        self.closed = False
        self._failures: list[Exception] = []
        self._death: SandboxDiedError | None = None
        self._died = anyio.Event()

    def fail_next(self, failure: Exception) -> None:
        """The next call (then the next, when given several) raises this instead of running."""
        self._failures.append(failure)

    def die(self, exit_code: int = 137, *, oom_killed: bool = False) -> None:
        """The container ends now: running and later calls raise `SandboxDiedError`."""
        text = f"the sandbox ended with exit code {exit_code}" + (", out of memory" if oom_killed else "")
        self._death = SandboxDiedError(text, container_exit_code=exit_code, oom_killed=oom_killed)
        self._died.set()

    async def start(self) -> SandboxInfo:
        return SandboxInfo("fake", "fake", "none, in memory", "fake", uid=1000, gid=1000)

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """Nothing outlives a call here, so there is nothing to end."""
        self.calls.append(FakeCall("end_all", ()))
        self._raise_failure()

    async def give_back(self, owners: Mapping[str, tuple[int, int]]) -> None:
        raise SandboxStartError(f"nobody owns anything in this sandbox: {', '.join(owners)}")

    async def close(self) -> None:
        self.closed = True

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
        size = check_command(argv, env)
        check_stdin(stdin)
        check_output_file(spill_path, live_path)
        options = {"stdin": stdin, "cwd": cwd, "env": env, "timeout_s": timeout_s, "merge_stderr": merge_stderr}
        self.calls.append(FakeCall("exec", tuple(argv), options))
        call = self._program_call(argv, stdin, cwd, env)
        printed = Printed()
        if size > MAX_COMMAND_BYTES:
            printed.chunks.append((2, f"{argv[0]}: {os.strerror(errno.E2BIG)}\n".encode()))
            return _result(printed, 126, False, 0.0, max_output_bytes, merge_stderr)
        started_s = time.monotonic()
        live = None if live_path is None else LiveFile(self.files, live_path, merge_stderr)
        if live is not None:
            printed.listener = live.take
        exit_code = None
        with anyio.move_on_after(timeout_s):
            exit_code = await self._alive(lambda: run_program(call, self.programs, printed))
        timed_out = exit_code is None
        result = _result(
            printed,
            _TERMINATED if exit_code is None else exit_code,
            timed_out,
            time.monotonic() - started_s,
            max_output_bytes,
            merge_stderr,
        )
        if live is not None:
            return replace(result, spill_path=live.path, spill_bytes=live.size_bytes)
        return self._spilled(result, printed, spill_path, merge_stderr) if result.truncated and spill_path else result

    async def exec_apart(self, argv: Sequence[str], **options: Any) -> ExecResult:
        return await self.exec(argv, **options)

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> FakeStream:
        check_command(argv, env)
        self.calls.append(FakeCall("open", tuple(argv), {"cwd": cwd, "env": env}))
        self._raise_failure()
        return FakeStream(self, self._program_call(argv, b"", cwd, env))

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        for path in paths:
            check_path(path)
        return await self._file_verb("resolve", tuple(paths), lambda: [self.files.resolve(path) for path in paths])

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        check_path(path)
        return await self._file_verb(
            "read_file", (path,), lambda: self.files.read_file(path, offset, limit_bytes, resolved)
        )

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        check_path(path)
        return await self._file_verb(
            "replace_file", (path,), lambda: self.files.replace_file(path, data, expected_sha256, resolved)
        )

    async def _file_verb(self, verb: str, paths: tuple[str, ...], act: Callable[[], T]) -> T:
        self.calls.append(FakeCall(verb, paths))

        async def answer() -> T:
            await anyio.lowlevel.checkpoint()
            return act()

        return await self._alive(answer)

    async def _alive(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it unless a failure was asked for; end it when the sandbox dies meanwhile."""
        self._raise_failure()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        results: list[T] = []
        failures: list[OSError] = []

        async def do() -> None:
            try:
                results.append(await work())
            except OSError as exc:
                failures.append(exc)
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(do)
                await self._died.wait()
                group.cancel_scope.cancel()
        finally:
            self.running -= 1
        if failures:
            raise failures[0]
        if results:
            return results[0]
        self._raise_failure()
        raise AssertionError("neither a result, nor a failure, nor a death")

    def _raise_failure(self) -> None:
        if self._death is not None:
            raise self._death
        if self._failures:
            raise self._failures.pop(0)

    def _program_call(
        self, argv: Sequence[str], stdin: bytes, cwd: str | None, env: Mapping[str, str] | None
    ) -> ProgramCall:
        folder = self.files.locate(cwd or WORKSPACE_MOUNT)
        if folder.failure:
            raise OSError(folder.failure, os.strerror(folder.failure), cwd)
        if not isinstance(folder.node, FakeDirectory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
        return ProgramCall(tuple(argv), stdin, folder.resolved, {**_ENV, **(env or {})}, self.files)

    def _spilled(self, result: ExecResult, printed: Printed, path: str, merge_stderr: bool) -> ExecResult:
        full = b"".join(data for number, data in printed.chunks if number == 1 or merge_stderr)
        self.files.put(path, full, 0o600)
        return replace(result, spill_path=path, spill_bytes=len(full))


class FakeStream:
    """A `Stream` to a fake program. `cat` answers at once; any other runs when its output is first asked for."""

    def __init__(self, sandbox: FakeSandbox, call: ProgramCall) -> None:
        self._sandbox = sandbox
        self._call = call
        self._stdin = bytearray()
        self._output = bytearray()
        self._echoes = call.argv == ("cat",)
        self._eof = anyio.Event()
        self._came = anyio.Event()
        self._exit_code: int | None = None

    async def send(self, data: bytes) -> None:
        self._sandbox._raise_failure()
        if self._exit_code is not None or self._eof.is_set():
            raise BrokenPipeError(errno.EPIPE, "the program has ended or its stdin is closed")
        if self._echoes:
            self._output += data
            self._came.set()
        else:
            self._stdin += data

    async def send_eof(self) -> None:
        self._eof.set()
        self._came.set()

    async def receive(self) -> bytes:
        await self._run()
        while self._echoes and not self._output and not self._eof.is_set() and self._exit_code is None:
            self._came = anyio.Event()
            await self._came.wait()
        self._sandbox._raise_failure()
        data, self._output = bytes(self._output), bytearray()
        return data

    async def exit_code(self) -> int:
        await self._run()
        if self._echoes and self._exit_code is None:
            await self._eof.wait()
            self._exit_code = 0
        return self._exit_code or 0

    async def aclose(self) -> None:
        if self._exit_code is None:
            self._exit_code = _KILLED
        self._came.set()

    async def _run(self) -> None:
        if self._echoes or self._exit_code is not None:
            return
        printed = Printed()
        call = ProgramCall(self._call.argv, bytes(self._stdin), self._call.cwd, self._call.env, self._call.files)
        code = await self._sandbox._alive(lambda: run_program(call, self._sandbox.programs, printed))
        if self._exit_code is None:
            self._exit_code = code
            self._output += b"".join(data for number, data in printed.chunks if number == 1)


def _result(
    printed: Printed, exit_code: int, timed_out: bool, duration_s: float, max_output_bytes: int, merge_stderr: bool
) -> ExecResult:
    kept = {1: KeptOutput(max_output_bytes), 2: KeptOutput(max_output_bytes)}
    for number, data in printed.chunks:
        kept[1 if merge_stderr else number].add(data)
    return ExecResult(
        exit_code,
        kept[1].value(),
        kept[2].value(),
        timed_out,
        stdout_bytes=kept[1].total_bytes,
        stderr_bytes=kept[2].total_bytes,
        duration_s=duration_s,
        leftover_processes=printed.leftovers,
    )
