"""An in-memory file system with directories, modes, symbolic and hard links and FIFOs, for `sandboxes.fake`.

It answers the file verbs of the `Sandbox` contract as a real system would, errors included. Not for real use.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_agent.sandboxes.base import (
    MAX_FILE_BYTES,
    FileChangedError,
    FileContent,
    FileKind,
    FileTooLargeError,
    NotRegularFileError,
    PathChangedError,
    PathInfo,
)

_FIRST_MTIME_NS = 1_700_000_000_000_000_000
_MAX_LINKS = 40
_NAME_MAX = 255


@dataclass(slots=True)
class FakeFile:
    """A regular file; several names may hold the same one, as hard links do."""

    data: bytes
    mode: int
    mtime_ns: int


@dataclass(slots=True)
class FakeDirectory:
    mode: int
    mtime_ns: int


@dataclass(slots=True)
class FakeLink:
    target: str


@dataclass(slots=True)
class FakeFifo:
    mtime_ns: int


FakeNode = FakeFile | FakeDirectory | FakeLink | FakeFifo


@dataclass(frozen=True, slots=True)
class Located:
    """Where a path leads; `failure` is the errno a real system would give, 0 when `node` is there."""

    resolved: str
    node: FakeFile | FakeDirectory | FakeFifo | None
    failure: int


class FakeFiles:
    """The tree. Paths are absolute; parents are made as needed; every change takes the next mtime."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._clock_ns = _FIRST_MTIME_NS
        self._nodes: dict[str, FakeNode] = {"/": FakeDirectory(0o755, self._clock_ns)}
        for path, data in (files or {}).items():
            self.put(path, data)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """A regular file at exactly this path, whatever was there."""
        self.mkdir(posixpath.dirname(path))
        self._nodes[path] = FakeFile(data, mode, self._tick())

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        """A directory with its parents; one that is there stays."""
        if path not in self._nodes:
            self.mkdir(posixpath.dirname(path))
            self._nodes[path] = FakeDirectory(mode, self._tick())

    def symlink(self, path: str, target: str) -> None:
        self.mkdir(posixpath.dirname(path))
        self._nodes[path] = FakeLink(target)

    def hard_link(self, path: str, existing: str) -> None:
        """A second name for a file: a change through one shows through the other."""
        self.mkdir(posixpath.dirname(path))
        self._nodes[path] = self._nodes[existing]

    def fifo(self, path: str) -> None:
        self.mkdir(posixpath.dirname(path))
        self._nodes[path] = FakeFifo(self._tick())

    def chmod(self, path: str, mode: int) -> None:
        node = self._require(path).node
        if isinstance(node, FakeFile | FakeDirectory):
            node.mode = mode

    def remove(self, path: str) -> None:
        """This name and everything below it."""
        for name in [name for name in self._nodes if name == path or name.startswith(path + "/")]:
            del self._nodes[name]

    def paths(self) -> list[str]:
        """Every name in the tree, sorted."""
        return sorted(self._nodes)

    def node(self, path: str) -> FakeNode | None:
        """What has exactly this name; links are not followed."""
        return self._nodes.get(path)

    def data(self, path: str) -> bytes:
        """The content of the file a path leads to."""
        return self.read_file(path, 0, None, None).data

    def locate(self, path: str) -> Located:
        """Follow a path through links as the kernel would; never raises."""
        todo = deque(path.split("/"))
        done: list[str] = []
        node: FakeNode | None = self._nodes["/"]
        failure = hops = 0
        while todo:
            part = todo.popleft()
            if part in ("", "."):
                continue
            if not failure and not isinstance(node, FakeDirectory):
                failure = errno.ENOTDIR
            if part == "..":
                done = done[:-1]
                node = self._nodes.get("/" + "/".join(done))
                continue
            node = self._nodes.get("/" + "/".join([*done, part]))
            if isinstance(node, FakeLink) and not failure:
                hops += 1
                if hops > _MAX_LINKS:
                    return Located("/" + "/".join([*done, part]), None, errno.ELOOP)
                if node.target.startswith("/"):
                    done = []
                todo.extendleft(reversed(node.target.split("/")))
                node = self._nodes.get("/" + "/".join(done))
                continue
            done.append(part)
            if node is None and not failure:
                failure = errno.ENAMETOOLONG if len(os.fsencode(part)) > _NAME_MAX else errno.ENOENT
        resolved = "/" + "/".join(done)
        if failure or node is None or isinstance(node, FakeLink):
            return Located(resolved, None, failure or errno.ENOENT)
        return Located(resolved, node, 0)

    def resolve(self, path: str) -> PathInfo:
        located = self.locate(path)
        node = located.node
        if isinstance(node, FakeFile):
            return PathInfo(path, located.resolved, FileKind.FILE, len(node.data), node.mode, node.mtime_ns)
        if isinstance(node, FakeDirectory):
            return PathInfo(path, located.resolved, FileKind.DIRECTORY, 4096, node.mode, node.mtime_ns)
        if node is not None:
            return PathInfo(path, located.resolved, FileKind.OTHER, 0, 0o644, node.mtime_ns)
        return PathInfo(path, located.resolved, FileKind.MISSING)

    def read_file(self, path: str, offset: int, limit_bytes: int | None, resolved: str | None) -> FileContent:
        located = self._require(path, resolved)
        file = _regular(located, path)
        if not file.mode & 0o400:
            raise _os_error(errno.EACCES, path)
        piece = file.data[offset:] if limit_bytes is None else file.data[offset : offset + limit_bytes]
        if len(piece) > MAX_FILE_BYTES:
            raise FileTooLargeError(errno.EFBIG, f"{len(piece)} bytes, at most {MAX_FILE_BYTES} are read", path)
        return FileContent(path, piece, len(file.data), _sha256(file.data), file.mode, offset)

    def replace_file(self, path: str, data: bytes, expected_sha256: str | None, resolved: str | None) -> FileContent:
        if len(data) > MAX_FILE_BYTES:
            raise FileTooLargeError(errno.EFBIG, f"{len(data)} bytes, at most {MAX_FILE_BYTES} are written", path)
        located = self.locate(path)
        _check_resolved(located, path, resolved)
        if located.failure == errno.ENOENT:
            return self._create(located.resolved, path, data, expected_sha256)
        if located.failure:
            raise _os_error(located.failure, path)
        file = _regular(located, path)
        if expected_sha256 != _sha256(file.data):
            raise FileChangedError(errno.ESTALE, "the file's content is not the expected one", path)
        if not file.mode & 0o200:
            raise _os_error(errno.EACCES, path)
        file.data, file.mtime_ns, file.mode = data, self._tick(), file.mode & 0o777
        return FileContent(path, b"", len(data), _sha256(data), file.mode)

    def _create(self, resolved: str, path: str, data: bytes, expected_sha256: str | None) -> FileContent:
        if expected_sha256 is not None:
            raise _os_error(errno.ENOENT, path)
        if path.endswith("/"):
            raise _os_error(errno.EISDIR, path)
        parent = posixpath.dirname(resolved)
        while parent not in self._nodes:
            parent = posixpath.dirname(parent)
        above = self._nodes[parent]
        if not isinstance(above, FakeDirectory):
            raise _os_error(errno.ENOTDIR, path)
        if not above.mode & 0o200:
            raise _os_error(errno.EACCES, path)
        self.put(resolved, data)
        return FileContent(path, b"", len(data), _sha256(data), 0o644)

    def _require(self, path: str, resolved: str | None = None) -> Located:
        located = self.locate(path)
        _check_resolved(located, path, resolved)
        if located.failure:
            raise _os_error(located.failure, path)
        return located

    def _tick(self) -> int:
        self._clock_ns += 1_000_000
        return self._clock_ns


def _check_resolved(located: Located, path: str, resolved: str | None) -> None:
    if resolved is not None and located.resolved != resolved:
        raise PathChangedError(errno.ESTALE, f"now leads to {located.resolved}, not to {resolved}", path)


def _regular(located: Located, path: str) -> FakeFile:
    if isinstance(located.node, FakeDirectory):
        raise _os_error(errno.EISDIR, path)
    if not isinstance(located.node, FakeFile):
        raise NotRegularFileError(errno.EINVAL, "not a regular file", path)
    if path.endswith("/"):
        raise _os_error(errno.ENOTDIR, path)
    return located.node


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
