"""Reading what comes up from the container. Every byte is hostile: fixed forms, bounded sizes, nothing else.

Whatever does not fit is a `MalformedError`, and the runner that sent it counts as dead.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from sandbox_agent.sandboxes.base import (
    FileChangedError,
    FileKind,
    FileTooLargeError,
    NotRegularFileError,
    PathChangedError,
)
from sandbox_agent.sandboxes.runner import wire

MAX_PATH_BYTES = 32 * 1024

_FILE_KINDS = {
    wire.KIND_MISSING: FileKind.MISSING,
    wire.KIND_FILE: FileKind.FILE,
    wire.KIND_DIRECTORY: FileKind.DIRECTORY,
    wire.KIND_OTHER: FileKind.OTHER,
}


class RunnerKilledError(OSError):
    """A file verb was under way when the runner was killed; for a write, look at the file before trying again."""


class MalformedError(Exception):
    """The runner sent something that no runner of ours sends."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    call: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call's program ended."""

    exit_code: int
    timed_out: bool
    oom_killed: bool
    stdout_bytes: int
    stderr_bytes: int
    duration_s: float
    leftover_processes: int
    spill_bytes: int | None
    cpu_s: float = 0.0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Meta:
    mode: int
    size_bytes: int
    data_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Place:
    kind: FileKind
    size_bytes: int
    mode: int
    mtime_ns: int
    resolved: str


@dataclass(frozen=True, slots=True)
class Failure:
    why: int
    number: int
    text: str

    def as_os_error(self, path: str) -> OSError:
        """The error of the contract, with the path it is about."""
        if self.why == wire.FAIL_KILLED:
            return RunnerKilledError(errno.EIO, self.text, path)
        return _OS_ERRORS.get(self.why, OSError)(self.number, self.text, path)


_OS_ERRORS: dict[int, type[OSError]] = {
    wire.FAIL_NOT_REGULAR: NotRegularFileError,
    wire.FAIL_TOO_LARGE: FileTooLargeError,
    wire.FAIL_FILE_CHANGED: FileChangedError,
    wire.FAIL_PATH_CHANGED: PathChangedError,
}


class FrameReader:
    """Cuts the byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now.

        Raises:
            MalformedError: a body longer than any of ours.
        """
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while len(self._buffer) - position >= wire.HEADER.size:
            size, kind, call = wire.HEADER.unpack_from(self._buffer, position)
            if size > wire.MAX_BODY_BYTES:
                raise MalformedError(f"a frame of {size} bytes")
            start = position + wire.HEADER.size
            if len(self._buffer) < start + size:
                break
            position = start + size
            frames.append(Frame(kind, call, bytes(self._buffer[start:position])))
        del self._buffer[:position]
        return frames


def count(body: bytes) -> int:
    """Body of an ACK."""
    _require_size(wire.COUNT, body)
    number: int = wire.COUNT.unpack(body)[0]
    return number


def ended(body: bytes) -> Ended:
    """Body of a RESULT."""
    _require_size(wire.RESULT_BODY, body)
    exit_code, flags, stdout_bytes, stderr_bytes, duration_s, leftovers, spill_bytes, cpu_s, max_rss_bytes = (
        wire.RESULT_BODY.unpack(body)
    )
    if not 0 <= exit_code <= 255 or flags > 7 or not 0 <= duration_s < 1e9 or not 0 <= cpu_s < 1e12:
        raise MalformedError("a result out of range")
    return Ended(
        exit_code,
        bool(flags & wire.TIMED_OUT),
        bool(flags & wire.OOM_KILLED),
        stdout_bytes,
        stderr_bytes,
        duration_s,
        leftovers,
        spill_bytes if flags & wire.SPILLED else None,
        cpu_s,
        max_rss_bytes,
    )


def meta(body: bytes, most_bytes: int) -> Meta:
    """Body of a META; at most `most_bytes` of data may follow."""
    _require_size(wire.META_BODY, body)
    mode, size_bytes, data_bytes, digest = wire.META_BODY.unpack(body)
    if mode > 0o7777 or data_bytes > most_bytes:
        raise MalformedError("a file description out of range")
    return Meta(mode, size_bytes, data_bytes, digest.hex())


def place(body: bytes) -> Place:
    """Body of a PATH."""
    head, tail = body[: wire.PATH_BODY.size], body[wire.PATH_BODY.size :]
    _require_size(wire.PATH_BODY, head)
    kind, size_bytes, mode, mtime_ns = wire.PATH_BODY.unpack(head)
    if kind not in _FILE_KINDS or mode > 0o7777 or not tail.startswith(b"/") or b"\0" in tail:
        raise MalformedError("a path description out of range")
    return Place(_FILE_KINDS[kind], size_bytes, mode, mtime_ns, tail.decode("utf-8", "surrogateescape"))


def failure(body: bytes) -> Failure:
    """Body of a FAIL."""
    head, tail = body[: wire.FAIL_BODY.size], body[wire.FAIL_BODY.size :]
    _require_size(wire.FAIL_BODY, head)
    why, number = wire.FAIL_BODY.unpack(head)
    if why > wire.FAIL_NO_PROCESS or len(tail) > wire.MAX_TEXT_BYTES:
        raise MalformedError("a failure out of range")
    return Failure(why, number, tail.decode("utf-8", "replace"))


def _require_size(form: struct.Struct, body: bytes) -> None:
    if len(body) != form.size:
        raise MalformedError(f"a body of {len(body)} bytes where {form.size} belong")
