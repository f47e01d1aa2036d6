"""Fills a session's copy from the person's folder and lists what it took, hashing each file as it is copied."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind, Owner
from sandbox_agent.workspaces.content import transfer
from sandbox_agent.workspaces.entries import file_kind, link_digest, special, special_name
from sandbox_agent.workspaces.manifest import MASKED_BY, Entry, Manifest, stamp
from sandbox_agent.workspaces.nofollow import Place, encode, open_folder_at
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.tree import MAX_ENTRIES, Found, Tree

PROGRESS_EVERY = 100

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Copier:
    """One pass over the folder. Modes and times are kept, owners become the tools', set-id bits are dropped."""

    def __init__(
        self,
        source: Tree,
        target: Tree,
        *,
        owner: Owner,
        masked: Mapping[str, str],
        notes: Notes,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._owner = owner if os.geteuid() == 0 else None
        self._masked = masked
        self._notes = notes
        self._progress = progress
        self._folders: list[tuple[str, os.stat_result]] = []
        self._manifest = Manifest()

    def run(self) -> Manifest:
        """Copy everything.

        Raises:
            WorkspaceError: no space, or too many entries.
            OSError: the folder itself cannot be listed.
        """
        self._folder("", self._source.listing(""))
        pending = [path for path, _ in self._folders]
        while pending:
            folder = pending.pop()
            try:
                entries = self._source.listing(folder)
            except OSError as error:
                self._hide(folder, Kind.DIRECTORY, f"not readable ({error.strerror})")
                continue
            known = len(self._folders)
            self._folder(folder, entries)
            pending += [path for path, _ in self._folders[known:]]
        self._finish_folders()
        self._manifest.finish()
        return self._manifest

    def _folder(self, folder: str, entries: list[Found]) -> None:
        if len(self._manifest.entries) + len(entries) > MAX_ENTRIES:
            raise WorkspaceError(f"{self._source.root}: more than {MAX_ENTRIES:,} entries; use a smaller folder")
        source_fd = self._source.open_folder(folder)
        try:
            target_fd = self._target.open_folder(folder)
            try:
                for found in entries:
                    self._entry(found, source_fd, target_fd)
            finally:
                os.close(target_fd)
        finally:
            os.close(source_fd)

    def _entry(self, found: Found, source_fd: int, target_fd: int) -> None:
        kind, name = file_kind(found.info.st_mode), encode(found.path.rpartition("/")[2])
        rule = self._masked.get(found.path)
        if rule is not None:
            self._hide(found.path, kind, MASKED_BY + rule)
            return
        if kind is Kind.OTHER:
            self._hide(found.path, kind, f"not copied: {special_name(special(found.info))}")
            return
        try:
            self._copy(kind, found, Place(source_fd, name), Place(target_fd, name))
        except FileNotFoundError:
            return  # the person removed it meanwhile
        except OSError as error:
            if error.errno in _FULL:
                raise WorkspaceError(f"{found.path}: cannot be copied into the session: {error.strerror}") from error
            self._hide(found.path, kind, f"not readable ({error.strerror})")
        if self._progress is not None and len(self._manifest.entries) % PROGRESS_EVERY == 0:
            self._progress(len(self._manifest.entries))

    def _copy(self, kind: Kind, found: Found, source: Place, target: Place) -> None:
        if kind is Kind.DIRECTORY:
            target.mkdir(0o700)
            self._folders.append((found.path, found.info))
            self._manifest.entries[found.path] = Entry(kind, mode=found.info.st_mode & 0o777)
        elif kind is Kind.LINK:
            text = source.readlink()
            target.symlink(text)
            self._own_link(target, found.info)
            self._manifest.entries[found.path] = Entry(kind, link_digest(text), size_bytes=len(text), target=text)
        else:
            self._manifest.entries[found.path] = self._copy_file(source, target)

    def _copy_file(self, source: Place, target: Place) -> Entry:
        source_fd = source.open_file()
        try:
            info = os.fstat(source_fd)
            target_fd = target.create_file()
            try:
                content = transfer(source_fd, target_fd)
                self._own(target_fd, info)
                copied = os.fstat(target_fd)
            except OSError:
                target.unlink()
                raise
            finally:
                os.close(target_fd)
        finally:
            os.close(source_fd)
        return Entry(Kind.FILE, content.sha256, info.st_mode & 0o777, content.size_bytes, stamp=stamp(copied))

    def _own(self, fd: int, info: os.stat_result) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner.uid, self._owner.gid)
        os.fchmod(fd, stat.S_IMODE(info.st_mode) & 0o777)
        os.utime(fd, ns=(info.st_atime_ns, info.st_mtime_ns))

    def _own_link(self, place: Place, info: os.stat_result) -> None:
        if self._owner is not None:
            os.chown(place.name, self._owner.uid, self._owner.gid, dir_fd=place.folder_fd, follow_symlinks=False)
        times = (info.st_atime_ns, info.st_mtime_ns)
        os.utime(place.name, ns=times, dir_fd=place.folder_fd, follow_symlinks=False)

    def _finish_folders(self) -> None:
        """Deepest first: a folder that must end up without write permission is filled by now."""
        for path, info in reversed(self._folders):
            with self._target.at(path) as place:
                fd = open_folder_at(place.folder_fd, place.name)
                try:
                    self._own(fd, info)
                finally:
                    os.close(fd)
        root_fd = self._target.open_folder("")
        source_fd = self._source.open_folder("")
        try:
            self._own(root_fd, os.fstat(source_fd))
        finally:
            os.close(source_fd)
            os.close(root_fd)

    def _hide(self, path: str, kind: Kind, why: str) -> None:
        self._manifest.entries[path] = Entry(kind, hidden=why)
        self._notes.add(why, path)
