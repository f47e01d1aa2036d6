"""What a sandbox back end is. Two verbs must be written, `exec` and `open`; the file verbs have defaults over `exec`
in `sandboxes.files`, so that every back end gets them free.

All paths are absolute paths in the sandbox. All faults of the sandbox itself are `SandboxError`s and end the run;
a command that fails is a value, and a file that cannot be had is one of the `OSError`s named below.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_agent.sandboxes.runner import kept

KIB = 1024
MIB = 1024 * KIB

DEFAULT_MAX_OUTPUT_BYTES = 10 * MIB
"""Kept per stream of an `exec` when the caller does not say: half from the head, half from the tail."""

MAX_FILE_BYTES = 100 * MIB
"""The largest file `read_file` returns whole and `replace_file` takes."""

LIVE_MAX_BYTES = kept.LIVE_MAX_BYTES
"""Of an output, in the file that is written as it comes."""

KILL_GRACE_S = 2.0
"""From TERM to KILL, for every process of a call that ran out of time."""


class NotRegularFileError(OSError):
    """The path is a FIFO, socket or device: it is never opened."""


class FileTooLargeError(OSError):
    """More than `MAX_FILE_BYTES` would be read or written; the text has both sizes."""


class FileChangedError(OSError):
    """`replace_file` found other content than expected; nothing was written."""


class PathChangedError(OSError):
    """The path no longer resolves to where it did when the call was judged; nothing was done."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a process ended.

    `exit_code` is 128 + N for a process that signal N ended. `stdout`/`stderr` are what was kept: everything, or,
    when the stream was longer than `max_output_bytes`, the first half and the last half of that many bytes joined;
    `stdout_bytes`/`stderr_bytes` are the true totals. With `merge_stderr` all is in `stdout`, in write order.
    `oom_killed` is True when the sandbox's memory limit killed something during the call.
    `leftover_processes` counts what outlived the command and was killed. `spill_path` is the file that the full output
    went to, all along (`live_path`) or when it was too long; None where there is none.
    `cpu_s` is of all its processes together, `max_rss_bytes` of the largest one (with what it was forked from, so small
    ones show some 10 MiB); None where the sandbox cannot tell.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes = b""
    timed_out: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_s: float = 0.0
    oom_killed: bool = False
    leftover_processes: int = 0
    spill_path: str | None = None
    spill_bytes: int = 0
    cpu_s: float | None = None
    max_rss_bytes: int | None = None

    @property
    def truncated(self) -> bool:
        return self.stdout_bytes > len(self.stdout) or self.stderr_bytes > len(self.stderr)


class FileKind(enum.StrEnum):
    """What a path is, links followed. `MISSING` covers a dangling link."""

    FILE = "file"
    DIRECTORY = "directory"
    MISSING = "missing"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PathInfo:
    """Where a path leads in the sandbox. A missing path resolves its existing parents and keeps the rest."""

    path: str
    resolved: str
    kind: FileKind
    size_bytes: int = 0
    mode: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class FileContent:
    """A piece of a regular file. `sha256` and `size_bytes` are of the whole file, `data` starts at `offset`."""

    path: str
    data: bytes
    size_bytes: int
    sha256: str
    mode: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What a started sandbox is, for `doctor`, the record and people."""

    id: str
    image: str
    isolation: str
    transport: str
    uid: int
    gid: int
    details: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Where it is less than was asked for, in words for people."""


class Stream(Protocol):
    """A duplex byte stream to a process in the sandbox; bytes come in chunks of any size."""

    async def send(self, data: bytes) -> None:
        """Write to its stdin; waits while the process does not read.

        Raises:
            BrokenPipeError: the process has ended or closed its stdin.
            SandboxDiedError: the sandbox is gone.
        """
        ...

    async def send_eof(self) -> None:
        """Close its stdin. Sending afterwards is an error, receiving goes on."""
        ...

    async def receive(self) -> bytes:
        """The next bytes of its stdout, b"" at the end. The process is held back while nobody receives.

        Raises:
            SandboxDiedError: the sandbox is gone.
        """
        ...

    async def exit_code(self) -> int:
        """Wait until it ended; 128 + N for signal N."""
        ...

    async def aclose(self) -> None:
        """Kill the process with all its descendants and give back the stream. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """A place where commands run. Methods may be called concurrently once `start` has returned."""

    @property
    def restarts(self) -> int:
        """How often it had to be started again, because nothing less ended what ran in it: each time all processes end
        and all files but the workspace's go."""
        ...

    async def start(self) -> SandboxInfo:
        """Make it ready.

        Raises:
            SandboxUnavailableError: no engine or image answers.
            SandboxStartError: it could not be made.
        """
        ...

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """Kill every process of the tools, whoever started it. Open calls end as killed; the next call works again.

        Args:
            spare: a stream of ours that may live on; it need not.

        Raises:
            SandboxDiedError: the sandbox ended meanwhile.
        """
        ...

    async def give_back(self, owners: Mapping[str, tuple[int, int]]) -> None:
        """Give entries of the workspace to others than the tools, which only root can: not for what a model asks for.

        Args:
            owners: paths below the workspace, "" for itself, to uid and gid as the tools see them. Links are not
                followed; set-id bits are lost.

        Raises:
            SandboxUnavailableError, SandboxStartError: it cannot be done here, or not for all; the text says why.
        """
        ...

    async def close(self) -> None:
        """Remove it with everything in it. Shielded from cancellation, bounded in time, safe to call twice."""
        ...

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
        """Run a program to its end, never on a terminal; when it ends, so does everything it started.

        Args:
            argv: program (found on the sandbox's PATH) and arguments.
            stdin: given to it, then end of file. At most `MAX_FILE_BYTES`.
            cwd: working directory; None is the workspace.
            env: added to the sandbox's own fixed environment; the host's environment never enters.
            timeout_s: after it, TERM to every process of the call, `KILL_GRACE_S` later KILL. None is no limit.
            max_output_bytes: kept per stream, see `ExecResult`.
            merge_stderr: stderr goes where stdout goes, in write order.
            spill_path: when more than `max_output_bytes` came, the output (bounded) is also written to this file.
            live_path: the file is made when the program starts (it must be new), and stdout is written to it as it
                comes, for `read_file`: the first `LIVE_MAX_BYTES`, and, when more came, at the end a line that says
                how many bytes are left out and the last half of `max_output_bytes`.

        Returns:
            ExecResult: also for a program that is missing (127) or not executable (126), with the reason in
            stderr (stdout when merged).

        Raises:
            ValueError: argv is empty, or holds a NUL, or one argument is 128 KiB or longer; both files are asked for.
            NotADirectoryError, FileNotFoundError: `cwd` is not a directory.
            SandboxDiedError: the sandbox ended meanwhile.
        """
        ...

    async def exec_apart(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a program that is not the tools' to its end: as another user, with nothing but PATH, LANG and HOME in its
        environment, in the workspace, or in `/` where that user may not enter it. All else as for `exec`."""
        ...

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Stream:
        """Start a program and talk to it; its stderr is dropped. Same argument rules as `exec`."""
        ...

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        """Where each path leads, in one round trip; never fails for a path, a loop of links counts as missing."""
        ...

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        """Bytes of a regular file, never waiting on it.

        Args:
            path: absolute; links are followed, in the sandbox.
            offset: first byte.
            limit_bytes: at most so many; None is the rest of the file.
            resolved: if given, the path must still resolve to this.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError, NotADirectoryError: as their names say.
            NotRegularFileError: a FIFO, socket or device.
            FileTooLargeError: more than `MAX_FILE_BYTES` would be returned.
            PathChangedError: see `resolved`.
            OSError: anything else the sandbox's system said, with its errno (for example ENAMETOOLONG).
        """
        ...

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        """Compare and swap a whole file in one step: parents are made, the write is atomic, mode and owner are kept.

        A file with several hard links is written in place, so that all names keep showing the same content.

        Args:
            path: absolute; links are followed, in the sandbox.
            data: the new content, at most `MAX_FILE_BYTES`.
            expected_sha256: of the content there now; None means there must be no file.
            resolved: if given, the path must still resolve to this.

        Returns:
            FileContent: of the new file, with `data` left empty.

        Raises:
            FileChangedError: the content is not the expected one (also: a file is there and none was expected).
            FileNotFoundError: a file was expected and there is none.
            IsADirectoryError, PermissionError, NotADirectoryError, NotRegularFileError, FileTooLargeError,
            PathChangedError, OSError: as for `read_file`; ENOSPC when the disk limit is reached, nothing written.
        """
        ...
