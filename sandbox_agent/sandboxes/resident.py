"""The `Sandbox` verbs over the resident runner: requests down, answers up, and the texts for when it was killed."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sandbox_agent.sandboxes.arguments import (
    MAX_COMMAND_BYTES,
    check_command,
    check_output_file,
    check_path,
    check_stdin,
    encoded,
)
from sandbox_agent.sandboxes.base import (
    DEFAULT_MAX_OUTPUT_BYTES,
    KILL_GRACE_S,
    MAX_FILE_BYTES,
    ExecResult,
    FileContent,
    FileKind,
    FileTooLargeError,
    PathInfo,
    Stream,
)
from sandbox_agent.sandboxes.calls import ExecCall, FileCall, ResolveCall
from sandbox_agent.sandboxes.connection import Connection, RunnerGoneError
from sandbox_agent.sandboxes.frames import MAX_PATH_BYTES, Failure, Place, RunnerKilledError
from sandbox_agent.sandboxes.runner import wire
from sandbox_agent.sandboxes.runners import KILLED, Runners
from sandbox_agent.sandboxes.streams import EndedStream, ResidentStream
from sandbox_agent.types import WORKSPACE_MOUNT

LATER_DEADLINE_S = 2.5
"""After a call's own deadline and its grace, how long the runner may take to report it. It has the processor before the
call's own processes; one that does not report has been stopped, for example by the call."""

FILE_DEADLINE_S = 60.0
NOT_EXECUTABLE = 126
"""What a shell gives for a program that is there and cannot be started."""

_INLINE_BYTES = 32 * 1024
RUNNER_KILLED = "sandbox: the runner that carries out every call"
RUNNER_KILLED_END = (
    "Everything that ran in the sandbox was ended, output of this call is lost, files are as they were left. "
    "The next call works again."
)


class Resident:
    """The verbs. Calls may come concurrently."""

    def __init__(self, runners: Runners, *, later_deadline_s: float = LATER_DEADLINE_S) -> None:
        self._runners = runners
        self._later_deadline_s = later_deadline_s

    async def aclose(self) -> None:
        """End the runner."""
        await self._runners.aclose()

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """See `Sandbox.end_all`."""
        await self._runners.end_all(spare.number if isinstance(spare, ResidentStream) else None)

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
        if size > MAX_COMMAND_BYTES:
            return failed(NOT_EXECUTABLE, f"{argv[0]}: Argument list too long", merge_stderr, max_output_bytes)
        file_path = check_output_file(spill_path, live_path)
        fields = {
            **_program("exec", argv, cwd, env),
            "eof": len(stdin) <= _INLINE_BYTES,
            "timeout_s": timeout_s,
            "grace_s": KILL_GRACE_S,
            "max_output_bytes": max_output_bytes,
            "merge": merge_stderr,
            "spill_path": spill_path,
            "live_path": live_path,
        }
        deadline_s = None if timeout_s is None else timeout_s + KILL_GRACE_S + self._later_deadline_s
        try:
            async with self._runners.call(ExecCall(max_output_bytes), deadline_s) as (connection, number, call):
                call.unacknowledged = len(stdin[:_INLINE_BYTES])
                await connection.request(number, fields, stdin[:_INLINE_BYTES])
                await self._feed(connection, number, stdin)
                await connection.wait(number)
        except RunnerGoneError as exc:
            told = failed(KILLED, _killed_text(exc), merge_stderr, max_output_bytes)
            return replace(told, oom_killed=exc.out_of_memory)
        if call.failure is not None:
            return _failed_exec(call.failure, cwd, merge_stderr, max_output_bytes)
        result = _exec_result(call, file_path)
        self._runners.oom_told |= result.oom_killed
        return result

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Stream:
        """See `Sandbox.open`. A runner that is killed meanwhile gives a stream that has ended with code 137."""
        if check_command(argv, env) > MAX_COMMAND_BYTES:
            return EndedStream(NOT_EXECUTABLE)
        fields = {**_program("open", argv, cwd, env), "eof": False}
        try:
            connection = await self._runners.living()
        except RunnerGoneError:
            return EndedStream(KILLED)
        stream = ResidentStream(self._runners, connection)
        await stream.start(fields)
        failure = stream.call.failure
        if failure is None:
            return stream
        await stream.aclose()
        if failure.why == wire.FAIL_OS:
            raise failure.as_os_error(cwd or WORKSPACE_MOUNT)
        return EndedStream(NOT_EXECUTABLE if failure.why == wire.FAIL_NO_PROCESS else KILLED)

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        """See `Sandbox.resolve`."""
        for path in paths:
            check_path(path)
        asked = [path for path in paths if len(encoded(path)) <= MAX_PATH_BYTES]
        fields = {"op": "resolve", "paths": asked, "eof": True}
        try:
            async with self._runners.call(ResolveCall(len(asked)), FILE_DEADLINE_S) as (connection, number, call):
                await connection.request(number, fields, b"")
                await connection.wait(number)
        except RunnerGoneError as exc:
            raise RunnerKilledError(errno.EIO, _killed_text(exc)) from exc
        if call.failure is not None:
            raise call.failure.as_os_error(paths[0])
        places = iter(call.places)
        # No kernel takes a path beyond 4096 bytes: one that is longer than a frame holds leads nowhere.
        return [_path_info(path, next(places)) if path in asked else _nowhere(path) for path in paths]

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.read_file`."""
        check_path(path)
        if offset < 0 or (limit_bytes is not None and limit_bytes < 0):
            raise ValueError("offset and limit_bytes are not negative")
        most_bytes = MAX_FILE_BYTES if limit_bytes is None else min(limit_bytes, MAX_FILE_BYTES)
        fields = {"op": "read", "path": path, "offset": offset, "limit": limit_bytes, "resolved": resolved, "eof": True}
        call = await self._file_call(path, FileCall(most_bytes), fields, b"")
        return _content(path, call, offset)

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.replace_file`."""
        check_path(path)
        if len(data) > MAX_FILE_BYTES:
            raise FileTooLargeError(errno.EFBIG, f"{len(data)} bytes, at most {MAX_FILE_BYTES} are written", path)
        fields = {
            "op": "replace",
            "path": path,
            "expected": expected_sha256,
            "resolved": resolved,
            "eof": len(data) <= _INLINE_BYTES,
        }
        call = await self._file_call(path, FileCall(0), fields, data)
        return _content(path, call, 0)

    async def _file_call(self, path: str, call: FileCall, fields: Mapping[str, object], data: bytes) -> FileCall:
        try:
            async with self._runners.call(call, FILE_DEADLINE_S) as (connection, number, _):
                await connection.request(number, fields, data[:_INLINE_BYTES])
                await self._feed(connection, number, data)
                await connection.wait(number)
        except RunnerGoneError as exc:
            raise RunnerKilledError(errno.EIO, _killed_text(exc), path) from exc
        if call.failure is not None:
            raise call.failure.as_os_error(path)
        return call

    async def _feed(self, connection: Connection, number: int, data: bytes) -> None:
        """What did not go along with the request, and the end of it."""
        if len(data) > _INLINE_BYTES:
            await connection.feed(number, data[_INLINE_BYTES:])
            await connection.send(number, wire.STDIN_EOF)


def failed(exit_code: int, text: str, merge_stderr: bool, max_output_bytes: int) -> ExecResult:
    """The result of a program that could not be run (to its end), with the reason where its stderr would be."""
    data = f"{text}\n".encode("utf-8", "surrogateescape")[:max_output_bytes]
    if merge_stderr:
        return ExecResult(exit_code, data, stdout_bytes=len(data))
    return ExecResult(exit_code, b"", data, stderr_bytes=len(data))


def _program(op: str, argv: Sequence[str], cwd: str | None, env: Mapping[str, str] | None) -> dict[str, object]:
    folder = WORKSPACE_MOUNT if cwd is None else cwd
    check_path(folder)
    return {"op": op, "argv": list(argv), "cwd": folder, "env": dict(env or {})}


def _killed_text(exc: RunnerGoneError) -> str:
    why = " when the container's memory limit was reached" if exc.out_of_memory else ""
    return f"{RUNNER_KILLED} {exc}{why}. {RUNNER_KILLED_END}"


def _failed_exec(failure: Failure, cwd: str | None, merge_stderr: bool, max_output_bytes: int) -> ExecResult:
    if failure.why == wire.FAIL_OS:
        raise failure.as_os_error(cwd or WORKSPACE_MOUNT)
    exit_code = NOT_EXECUTABLE if failure.why == wire.FAIL_NO_PROCESS else KILLED
    return failed(exit_code, f"sandbox: {failure.text}", merge_stderr, max_output_bytes)


def _exec_result(call: ExecCall, spill_path: str | None) -> ExecResult:
    ended = call.ended
    if ended is None:
        raise AssertionError("a finished call has a failure or an end")
    return ExecResult(
        ended.exit_code,
        bytes(call.stdout),
        bytes(call.stderr),
        ended.timed_out,
        ended.stdout_bytes,
        ended.stderr_bytes,
        ended.duration_s,
        ended.oom_killed,
        ended.leftover_processes,
        spill_path if ended.spill_bytes is not None else None,
        ended.spill_bytes or 0,
        ended.cpu_s,
        ended.max_rss_bytes,
    )


def _path_info(path: str, place: Place) -> PathInfo:
    return PathInfo(path, place.resolved, place.kind, place.size_bytes, place.mode, place.mtime_ns)


def _nowhere(path: str) -> PathInfo:
    return PathInfo(path, path, FileKind.MISSING)


def _content(path: str, call: FileCall, offset: int) -> FileContent:
    meta = call.meta
    if meta is None:
        raise AssertionError("a finished call has a failure or a description")
    return FileContent(path, bytes(call.data), meta.size_bytes, meta.sha256, meta.mode, offset)
