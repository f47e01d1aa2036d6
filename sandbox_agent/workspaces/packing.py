"""The person's folder as a stream of tar, for a copy that only the engine can hold; hashing each file on its way.

Read by descriptors and never through a link; what is masked or special stays out. The stream is made to be unpacked by
the tools' user: owners do not travel, set-id bits neither.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Mapping
from typing import IO, cast

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import special, special_name
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.survey import Survey
from sandbox_agent.workspaces.tree import Tree

BLOCK_BYTES = 256 * 1024


def pack(tree: Tree, found: Survey, write: Callable[[bytes], None], notes: Notes) -> Manifest:
    """Write everything that the session may see.

    Args:
        tree: the person's folder.
        found: what is in it.
        write: takes the stream piece by piece; an exception from it ends the work.
        notes: told of what is left out.

    Returns:
        Manifest: what was written, with digests; and what was left out, as hidden.

    Raises:
        OSError: the folder itself cannot be read any more.
    """
    manifest = Manifest()
    # GNU: names are bytes in it, whatever they are; the other formats want text.
    target = cast(IO[bytes], _Sink(write))
    with tarfile.open(
        fileobj=target, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for path, entry in found.manifest.entries.items():
            manifest.entries[path] = _add(archive, tree, path, entry, found.infos, notes)
    manifest.finish()
    return manifest


class _Sink:
    """What tarfile needs of a file to write to."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def write(self, data: bytes) -> int:
        self._write(bytes(data))
        return len(data)


def _add(
    archive: tarfile.TarFile, tree: Tree, path: str, entry: Entry, infos: Mapping[str, os.stat_result], notes: Notes
) -> Entry:
    if entry.hidden is not None:
        notes.add(entry.hidden, path)
        return entry
    info = infos[path]
    member = tarfile.TarInfo(path)
    member.mtime, member.mode = int(info.st_mtime), info.st_mode & 0o777
    if entry.kind is Kind.OTHER:
        why = f"not copied: {special_name(special(info))}"
        notes.add(why, path)
        return Entry(entry.kind, hidden=why)
    if entry.kind is Kind.FILE:
        return _add_file(archive, tree, path, member, notes)
    member.type = tarfile.DIRTYPE if entry.kind is Kind.DIRECTORY else tarfile.SYMTYPE
    member.linkname = entry.target or ""
    archive.addfile(member)
    return entry


def _add_file(archive: tarfile.TarFile, tree: Tree, path: str, member: tarfile.TarInfo, notes: Notes) -> Entry:
    try:
        with tree.at(path) as place:
            fd = place.open_file()
    except OSError as error:
        why = f"not readable ({error.strerror})"
        notes.add(why, path)
        return Entry(Kind.FILE, hidden=why)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        member.size, member.mode = info.st_size, info.st_mode & 0o777
        reader = _Reader(file, info.st_size)
        archive.addfile(member, cast(IO[bytes], reader))
    return Entry(Kind.FILE, reader.sha256, info.st_mode & 0o777, info.st_size)


class _Reader:
    """Exactly as many bytes as the header says, whatever becomes of the file meanwhile, and their digest."""

    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self._file = file
        self._left_bytes = size_bytes
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left_bytes if size < 0 else min(size, self._left_bytes)
        data = self._file.read(min(wanted, BLOCK_BYTES) if size < 0 else wanted).ljust(wanted, b"\0")
        self._left_bytes -= len(data)
        self._hash.update(data)
        return data
