"""Makes one path of the person's folder what the session made of it: the only writes that ever reach that folder."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.content import transfer
from sandbox_agent.workspaces.entries import file_kind, special
from sandbox_agent.workspaces.manifest import Entry, stamp
from sandbox_agent.workspaces.nofollow import NotRegularError, Place, open_folder_at
from sandbox_agent.workspaces.putspecial import UnmakeableError, make_special
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.source import CHANGED_IN_COPY, ContentError, Source
from sandbox_agent.workspaces.store import Store


class Conflict(Exception):
    """The change cannot go to the folder as it is now; the text says why. Nothing was changed."""


def explain(error: Conflict | OSError) -> str:
    """The reason in a person's words."""
    if isinstance(error, Conflict):
        return str(error)
    if isinstance(error, NotRegularError):
        return "is no regular file"
    if error.errno == errno.ELOOP:
        return "a folder on its way, or the file itself, is a link here"
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "the folder still holds something the session did not see or remove, or something appeared meanwhile"
    if error.errno == errno.ENOENT:
        return "it, or its folder, vanished meanwhile"
    if error.errno == errno.ENOTDIR:
        return "a folder on its way is no folder here"
    return error.strerror or str(error)


class Putter:
    """Writes into opened folders of the host, as the owner the folder has."""

    def __init__(
        self,
        source: Source,
        temporary_prefix: str,
        chosen: Store | None = None,
        devices: Mapping[str, Entry] = MappingProxyType({}),
    ) -> None:
        """`chosen` has the contents that were made of some hunks of a file, `devices` those that may be made again."""
        self._source = source
        self._prefix = temporary_prefix
        self._chosen = chosen
        self._devices = devices

    def put(self, difference: Difference, current: Entry | None, place: Place) -> None:
        """Bring one addition, modification, mode or type change over.

        Args:
            current: what is at `place`, already found to be no conflict; never a folder.

        Raises:
            Conflict: see the module `apply`.
            OSError: the system refused.
        """
        after = difference.after
        assert after is not None
        if current is not None:
            _replaceable(current, place)
        if after.kind is Kind.DIRECTORY:
            if current is not None:
                place.unlink()
            self.make_folder(place)
        elif after.kind is Kind.LINK:
            with self._beside(current, place) as temporary:
                temporary.symlink(after.target or "")
                if os.geteuid() == 0:
                    folder = os.fstat(place.folder_fd)
                    ids = (folder.st_uid, folder.st_gid)
                    os.chown(temporary.name, *ids, dir_fd=place.folder_fd, follow_symlinks=False)
        elif after.kind is Kind.OTHER:
            with self._beside(current, place) as temporary:
                try:
                    make_special(after.target or "", temporary, self._devices)
                except UnmakeableError as error:
                    raise Conflict(str(error)) from error
        elif difference.kind == "mode":
            self._put_mode(difference, current, place)
        else:
            self._put_file(difference, current, place)

    def make_folder(self, place: Place) -> None:
        """A new folder, 0755, of the owner of the one it is in; it is all that from the moment it has its name."""
        temporary = Place(place.folder_fd, f"{self._prefix}{secrets.token_hex(8)}".encode())
        temporary.mkdir(0o700)
        try:
            fd = open_folder_at(temporary.folder_fd, temporary.name)
            try:
                _own(fd, place)
                os.fchmod(fd, 0o755 | (os.fstat(fd).st_mode & stat.S_ISGID))  # a shared folder hands its group on
            finally:
                os.close(fd)
            temporary.rename_new(place)
        except OSError:
            temporary.rmdir()
            raise

    def _put_file(self, difference: Difference, current: Entry | None, place: Place) -> None:
        after = difference.after
        assert after is not None
        before = place.stat()
        with self._content(difference.path, after) as fd, place.stage(self._prefix) as staged:
            content = transfer(fd, staged.fd)
            if content.sha256 != after.sha256:
                raise Conflict(CHANGED_IN_COPY)
            if before is None:
                _own(staged.fd, place)
            else:
                _own_like(staged.fd, before)
                if stat.S_ISREG(before.st_mode):
                    _wear_like(staged.fd, place)
            os.fchmod(staged.fd, _mode(difference, before))
            _still(place, current)
            staged.commit(replace=current is not None)

    @contextmanager
    def _content(self, path: str, after: Entry) -> Iterator[int]:
        with ExitStack() as stack:
            try:
                if self._chosen is not None and after.sha256 is not None and self._chosen.has(after.sha256):
                    fd = stack.enter_context(self._chosen.open(after.sha256))
                else:
                    fd = stack.enter_context(self._source.open(path, after))
            except (ContentError, WorkspaceError) as error:
                raise Conflict(str(error)) from error
            yield fd

    def _put_mode(self, difference: Difference, current: Entry | None, place: Place) -> None:
        fd = place.open_file()
        try:
            info = os.fstat(fd)
            if current is None or stamp(info) != current.stamp:
                raise Conflict("was changed here while it was being applied")
            os.fchmod(fd, _mode(difference, info))
        finally:
            os.close(fd)

    @contextmanager
    def _beside(self, current: Entry | None, place: Place) -> Iterator[Place]:
        """A name beside the destination, to make a link or special file at, which then gets the name itself."""
        temporary = Place(place.folder_fd, f"{self._prefix}{secrets.token_hex(8)}".encode())
        try:
            yield temporary
            _still(place, current)
            if current is None:
                temporary.rename_new(place)
            else:
                temporary.rename_to(place)
        except (Conflict, OSError):
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise


def _replaceable(current: Entry, place: Place) -> None:
    info = place.stat()
    if info is None:
        return
    if current.kind is Kind.FILE and info.st_nlink > 1:
        raise Conflict(f"has {info.st_nlink} hard links here: replacing it would leave the other names behind")
    if os.geteuid() not in (0, info.st_uid):
        raise Conflict(f"belongs to uid {info.st_uid} here: replacing it would change its owner")


def _still(place: Place, current: Entry | None) -> None:
    """The last look before the rename: what was compared must still be there."""
    info = place.stat()
    if (info is None) != (current is None):
        raise Conflict("appeared or vanished here while it was being applied")
    if info is None or current is None:
        return
    if current.kind is Kind.OTHER:
        same = file_kind(info.st_mode) is Kind.OTHER and special(info) == current.target
    elif current.kind is Kind.LINK:
        same = stat.S_ISLNK(info.st_mode) and place.readlink() == current.target
    else:
        same = stamp(info) == current.stamp
    if not same:
        raise Conflict("was changed here while it was being applied")


def _own(fd: int, place: Place) -> None:
    if os.geteuid() == 0:
        folder = os.fstat(place.folder_fd)
        os.fchown(fd, folder.st_uid, folder.st_gid)


def _own_like(fd: int, info: os.stat_result) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) == (info.st_uid, info.st_gid):
        return
    try:
        os.fchown(fd, info.st_uid, info.st_gid)
    except PermissionError as error:
        raise Conflict(f"belongs to {info.st_uid}:{info.st_gid} here, whom we cannot give the new file") from error


def _wear_like(fd: int, place: Place) -> None:
    """Give a new file the extended attributes (user.*) and the access list of the one that it replaces."""
    old = place.open_file()
    try:
        for name in os.listxattr(old):
            if name.startswith("user.") or name == "system.posix_acl_access":
                os.setxattr(fd, name, os.getxattr(old, name))
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENODATA):
            raise Conflict(f"has extended attributes here that cannot be kept ({error.strerror})") from error
    finally:
        os.close(old)


def _mode(difference: Difference, info: os.stat_result | None) -> int:
    """0644 or 0755 for a new file; an old one keeps its mode but for an executable bit the session changed."""
    after, before = difference.after, difference.before
    assert after is not None
    if info is None or not stat.S_ISREG(info.st_mode) or before is None or before.kind is not Kind.FILE:
        return 0o755 if after.executable else 0o644
    mode = info.st_mode & 0o777
    if after.executable == before.executable:
        return mode
    return mode | (mode & 0o444) >> 2 if after.executable else mode & ~0o111
