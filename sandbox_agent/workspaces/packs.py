"""Many small contents in one file: writing a file for each of 100,000 takes minutes, and linking each for a fork, too.

A pack is the contents one after the other, then a table of digests, offsets and sizes, then where that table begins.
It is written whole or not at all, and never again. Packs are numbered without gaps, so a reader that misses a content
has only to look for the next number. What is damaged holds nothing: its contents are missing, which is noticed where
they are needed.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_ROW = struct.Struct(">32sQI")
_END = struct.Struct(">Q8s")
_MAGIC = b"sbx-pack"
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Packed(NamedTuple):
    """Where a content is."""

    number: int
    offset: int
    size_bytes: int


class Packs:
    """The packs in one folder. Reading needs no lock; one process at a time may write."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when the first pack comes."""
        self.folder = folder
        self._text = str(folder)
        self._found: dict[bytes, Packed] = {}
        self._next = 0
        self._linked: set[tuple[str, int]] = set()

    def find(self, sha256: bytes) -> Packed | None:
        """Where a content is, by its digest as bytes; None if it is in no pack."""
        found = self._found.get(sha256)
        while found is None and self._read_next():
            found = self._found.get(sha256)
        return found

    def read(self, packed: Packed) -> bytes:
        """The bytes there, fewer if the pack was cut; the caller checks their digest. Raises OSError."""
        fd = os.open(self.path(packed.number), _READ_FLAGS)
        try:
            return os.pread(fd, packed.size_bytes, packed.offset)
        finally:
            os.close(fd)

    def write(self, contents: Mapping[bytes, bytes], part_prefix: str) -> None:
        """Add a pack of contents by digest. `part_prefix` is what a pack is called beside the folder until it is whole.

        Raises:
            OSError: the system refused; nothing was added.
        """
        rows, position = [], 0
        for digest, data in contents.items():
            rows.append(_ROW.pack(digest, position, len(data)))
            position += len(data)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.folder.parent / f"{part_prefix}{secrets.token_hex(8)}"
        try:
            with open(os.open(part, _WRITE_FLAGS, 0o600), "wb") as file:
                file.writelines((*contents.values(), *rows, _END.pack(position, _MAGIC)))
            self._read_all()
            os.rename(part, self.path(self._next))
        finally:
            part.unlink(missing_ok=True)
        self._read_next()

    def share(self, number: int, other: Packs) -> None:
        """Let another folder have a pack too, by a link.

        Raises:
            OSError: the file system cannot, or the pack is gone.
        """
        if (self._text, number) not in other._linked:
            other.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            other._read_all()
            os.link(self.path(number), other.path(other._next), follow_symlinks=False)
            other._linked.add((self._text, number))
            other._read_next()

    def path(self, number: int) -> str:
        return f"{self._text}/{number:06d}"

    def _read_all(self) -> None:
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        """Take in the table of the next pack; False when there is none."""
        if not os.path.exists(self.path(self._next)):
            return False
        fd = os.open(self.path(self._next), _READ_FLAGS)
        try:
            for digest, offset, size in _table(fd):
                self._found.setdefault(digest, Packed(self._next, offset, size))
        finally:
            os.close(fd)
        self._next += 1
        return True


def _table(fd: int) -> list[tuple[bytes, int, int]]:
    """The rows at the end of a pack; none where it is damaged."""
    size = os.fstat(fd).st_size
    end = os.pread(fd, _END.size, max(0, size - _END.size))
    if len(end) < _END.size:
        return []
    start, magic = _END.unpack(end)
    length = size - _END.size - start
    if magic != _MAGIC or length < 0 or length % _ROW.size:
        return []
    table = os.pread(fd, length, start)
    if len(table) != length:
        return []
    return [row for row in _ROW.iter_unpack(table) if row[1] + row[2] <= start]
