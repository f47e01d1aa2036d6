"""File contents of a session, each kept once under its own hash, in the session's state folder; small ones in packs.

Only the host writes here (0700 and 0600, no container sees it), and what is read is checked against its name all the
same. A content is under its name only when it is whole: whoever is killed leaves at most a "part-" file, which the
next `sweep` removes. Holes of sparse files stay holes, large files never lie in memory.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.content import LARGE_BYTES, Content, digest, transfer
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.packs import Packed, Packs

SMALL_BYTES = wire.SMALL
"""Contents up to this size may come in batches."""

BATCH_BYTES = 8 * 1024 * 1024
"""So much of a batch is in memory at most."""

PART_PREFIX = "part-"
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = re.compile("[0-9a-f]{64}")


class Store:
    """The contents in one folder. Reading needs no lock; one process at a time may write and sweep."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when the first content comes."""
        self.folder = folder
        self._text = str(folder)
        self._packs = Packs(folder / "packs")

    def has(self, sha256: str) -> bool:
        place = self._place(sha256)
        return self._packed(sha256) is not None or os.path.exists(place)

    def put(self, data: bytes) -> str:
        """Keep some bytes; returns their name."""
        sha256 = hashlib.sha256(data).hexdigest()
        if len(data) >= LARGE_BYTES:
            raise ValueError(f"{len(data)} bytes at once; stream them through `part`")
        if not self.has(sha256):
            with self.part() as part:
                part.write(data, 0)
                part.keep_as(sha256)
        return sha256

    def put_file(self, fd: int) -> Content:
        """Keep what an opened regular file holds now; holes are not read."""
        with self.part() as part:
            content = transfer(fd, part.fd)
            part.keep_as(content.sha256)
        return content

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Small contents that come together. They are kept when the block ends, but not when an error ends it."""
        batch = Batch(self)
        yield batch
        batch.flush()

    @contextmanager
    def part(self) -> Iterator[Part]:
        """A content that comes in pieces: `write` them, then `keep`. Without, nothing stays."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = Part(self, self.folder / f"{PART_PREFIX}{secrets.token_hex(8)}")
        try:
            yield part
        finally:
            part.close()

    def read(self, sha256: str, limit_bytes: int) -> bytes:
        """The content as bytes.

        Raises:
            WorkspaceError: it is not here, is not what its name says, or is longer than `limit_bytes`.
        """
        packed = self._packed(sha256)
        if packed is not None and packed.size_bytes <= limit_bytes:
            return self._unpacked(sha256, packed)
        with self.open(sha256) as fd:
            size = os.fstat(fd).st_size
            if size > limit_bytes:
                raise WorkspaceError(f"content {sha256}: {size} bytes, at most {limit_bytes} are read at once")
            data = b""
            while more := os.read(fd, size - len(data)):
                data += more
            return data

    @contextmanager
    def open(self, sha256: str) -> Iterator[int]:
        """A descriptor of the content, at its start, after its hash was checked.

        Raises:
            WorkspaceError: it is not here, or is not what its name says.
        """
        packed = self._packed(sha256)
        if packed is not None:
            with os.fdopen(os.memfd_create("content"), "w+b") as file:
                file.write(self._unpacked(sha256, packed))
                file.seek(0)
                yield file.fileno()
            return
        try:
            fd = os.open(self._path(sha256), _READ_FLAGS)
        except OSError as error:
            raise WorkspaceError(f"content {sha256} is not in the session's store: {error.strerror}") from error
        try:
            if digest(fd).sha256 != sha256:
                raise WorkspaceError(f"content {sha256} in the session's store is damaged; it is not used")
            os.lseek(fd, 0, os.SEEK_SET)
            yield fd
        finally:
            os.close(fd)

    def share(self, sha256: str, other: Store) -> None:
        """Let another store have a content too, without copying it where the file system can.

        What is in one pack with it comes along.
        """
        packed = self._packed(sha256)
        if packed is not None:
            try:
                self._packs.share(packed.number, other._packs)
            except OSError:
                other.put(self._unpacked(sha256, packed))
            return
        other.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = other._path(sha256)
        if target.exists():
            return
        target.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            os.link(self._path(sha256), target, follow_symlinks=False)
        except FileExistsError:
            return
        except OSError:
            with self.open(sha256) as fd:
                other.put_file(fd)

    def size_bytes(self) -> int:
        """What the contents take on disk, holes not counted."""
        return sum(path.lstat().st_blocks * 512 for path in self.folder.glob("*/*"))

    def sweep(self) -> None:
        """Remove what killed writers left."""
        for path in self.folder.glob(f"{PART_PREFIX}*"):
            path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove all contents. Safe to call again."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self._packs = Packs(self._packs.folder)

    def _packed(self, sha256: str) -> Packed | None:
        return self._packs.find(bytes.fromhex(sha256)) if _PLAIN.fullmatch(sha256) else None

    def _unpacked(self, sha256: str, packed: Packed) -> bytes:
        try:
            data = self._packs.read(packed)
        except OSError as error:
            raise WorkspaceError(f"content {sha256} is not in the session's store: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise WorkspaceError(f"content {sha256} in the session's store is damaged; it is not used")
        return data

    def _path(self, sha256: str) -> Path:
        return Path(self._place(sha256))

    def _place(self, sha256: str) -> str:
        """As text: making a `Path` takes longer than all else about a small content."""
        name = sha256.removeprefix("blocks:")
        if not _PLAIN.fullmatch(name):
            raise WorkspaceError(f"{sha256!r} is no name of a content")
        return f"{self._text}/{name[:2]}/{name[2:] if name == sha256 else f'{name[2:]}.blocks'}"


class Batch:
    """Small contents on their way into one pack. Made by `Store.batch`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._contents: dict[bytes, bytes] = {}
        self._size_bytes = 0

    def has(self, sha256: str) -> bool:
        return self.store.has(sha256) or (bool(_PLAIN.fullmatch(sha256)) and bytes.fromhex(sha256) in self._contents)

    def put(self, data: bytes, limit_bytes: float = math.inf) -> Put | None:
        """Keep some bytes, at most `SMALL_BYTES`; None when that would add more than `limit_bytes` to the store."""
        digest = hashlib.sha256(data)
        sha256 = digest.hexdigest()
        if self.has(sha256):
            return Put(sha256, 0)
        if len(data) > limit_bytes:
            return None
        self._contents[digest.digest()] = data
        self._size_bytes += len(data)
        if self._size_bytes > BATCH_BYTES:
            self.flush()
        return Put(sha256, len(data))

    def put_file(self, fd: int) -> Content:
        """Keep what an opened regular file holds now, whatever its size."""
        if os.fstat(fd).st_size > SMALL_BYTES:
            return self.store.put_file(fd)
        data = os.pread(fd, SMALL_BYTES, 0)
        put = self.put(data)
        assert put is not None
        return Content(len(data), put.sha256)

    def flush(self) -> None:
        """Write down what there is."""
        contents, self._contents, self._size_bytes = self._contents, {}, 0
        if len(contents) == 1:
            self.store.put(*contents.values())
        elif contents:
            self.store._packs.write(contents, PART_PREFIX)


class Put(NamedTuple):
    """A content that is kept: its name, and how much that added to the store."""

    sha256: str
    added_bytes: int


class Part:
    """A content that is being written. Made by `Store.part`.

    `limit_bytes` is how much data may be added to the store; `refused` that it was more, `added` that it was added:
    not when the same content was there before.
    """

    def __init__(self, store: Store, path: Path) -> None:
        self._store = store
        self._path = path
        self._data_bytes = 0
        self.limit_bytes: float = math.inf
        self.added = self.refused = False
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes, offset: int) -> None:
        """Put bytes at an offset; what is left out is a hole."""
        view = memoryview(data)
        self._data_bytes += len(data)
        while view:
            written = os.pwrite(self.fd, view, offset)
            view, offset = view[written:], offset + written

    def keep(self, size_bytes: int) -> str:
        """End it at this size, hash it, and keep it; returns its name."""
        os.ftruncate(self.fd, size_bytes)
        sha256 = digest(self.fd).sha256
        self.keep_as(sha256)
        return sha256

    def keep_as(self, sha256: str) -> None:
        """Keep it under a hash that the caller has computed over exactly these bytes."""
        target = self._store._path(sha256)
        self.added = not target.exists()
        self.refused = self.added and self._data_bytes > self.limit_bytes
        if not self.refused:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            os.rename(self._path, target)

    def close(self) -> None:
        os.close(self.fd)
        self._path.unlink(missing_ok=True)
