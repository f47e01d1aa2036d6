"""The one way the host reads and writes below a workspace: relative to a directory descriptor, never through a link.

Paths are relative, "/"-joined, and `str` with surrogate escapes, so that any file name travels unchanged whatever the
locale. A folder in the middle of a path that is (or has just become) a link is an `OSError` with ELOOP; a file is
opened without waiting and must turn out to be a regular one. `tree` walks with it. Callers: this room only. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import secrets
import stat
from collections.abc import Callable
from types import TracebackType

MAX_PATH_BYTES = 4000
"""Longer relative paths are refused: the kernel takes 4096, and a hostile tree may be nested without end."""

_SYS_OPENAT2 = 437  # the same number on every architecture since Linux 5.6
_BENEATH_WITHOUT_LINKS = 0x08 | 0x04 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_RENAME_NOREPLACE = 1
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class NotRegularError(OSError):
    """The path is a FIFO, socket, device or directory where a regular file was needed; nothing was read."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def encode(path: str) -> bytes:
    """The bytes of a relative path.

    Raises:
        OSError: EINVAL for an absolute or empty path, "." or ".." or an empty part or a NUL; ENAMETOOLONG.
    """
    raw = path.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"a path of {len(raw)} bytes is more than {MAX_PATH_BYTES}")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise OSError(errno.EINVAL, "not a plain relative path", path)
    return raw


def decode(raw: bytes) -> str:
    """The text form of a name or path, reversible by `encode`."""
    return raw.decode("utf-8", "surrogateescape")


def openat2(folder_fd: int, path: bytes, flags: int) -> int:
    """Open below `folder_fd` with links refused in every part of the path, by the kernel in one step.

    Raises:
        OSError: ELOOP for a link, EXDEV for a way out, ENOSYS or EPERM where the system call is not to be had.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH_WITHOUT_LINKS)
    while True:
        fd = _libc().syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(folder_fd),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code), decode(path))


def open_by_parts(folder_fd: int, path: bytes) -> int:
    """Open a folder one part at a time, each with O_NOFOLLOW: what `openat2` does, for kernels without it."""
    *above, last = path.split(b"/")
    fd = os.dup(folder_fd)
    try:
        for part in above:
            # O_PATH: going through a folder takes the right to search it, not the right to list it.
            deeper = open_folder_at(fd, part, os.O_PATH)
            os.close(fd)
            fd = deeper
        return open_folder_at(fd, last)
    finally:
        os.close(fd)


def open_folder_at(folder_fd: int, name: bytes, extra_flags: int = 0) -> int:
    """Open one folder by its name; OSError with ELOOP when a link is there."""
    try:
        return os.open(name, FOLDER_FLAGS | extra_flags, dir_fd=folder_fd)
    except NotADirectoryError:
        # Linux says ENOTDIR, not ELOOP, for a link opened with O_DIRECTORY | O_NOFOLLOW.
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder_fd).st_mode):
            raise OSError(errno.ELOOP, "is a link", decode(name)) from None
        raise


def open_folder(folder_fd: int, path: bytes, by_kernel: Callable[[int, bytes, int], int] = openat2) -> int:
    """Open a folder below another by `openat2`, by parts where that is not to be had."""
    if b"/" not in path:
        return open_folder_at(folder_fd, path)
    try:
        # O_NOFOLLOW would turn the ELOOP for a link at the end into ENOTDIR; it is refused without.
        return by_kernel(folder_fd, path, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return open_by_parts(folder_fd, path)


def grant_owner(folder_fd: int, name: bytes) -> None:
    """Give the owner back what a tool took from a folder or file of the session's own copy (`chmod 000`)."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            # chmod by name would follow a link put there meanwhile; the descriptor's own name cannot be swapped.
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) & 0o777 | (0o700 if stat.S_ISDIR(mode) else 0o600))
    finally:
        os.close(fd)


class Staged:
    """A new file beside its destination, not yet visible under its name. Without `commit` it vanishes on exit."""

    def __init__(self, place: Place, prefix: str) -> None:
        self._place = place
        self._temporary = f"{prefix}{secrets.token_hex(8)}".encode()
        self.fd = Place(place.folder_fd, self._temporary).create_file()

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)
        try:
            os.unlink(self._temporary, dir_fd=self._place.folder_fd)
        except FileNotFoundError:
            return  # committed

    def commit(self, *, replace: bool) -> None:
        """Put it under its name, with its data on disk first; the name shows either the old or the new file.

        Args:
            replace: an existing file is replaced; otherwise one that appeared meanwhile is an error.

        Raises:
            FileExistsError: something is there and `replace` is False.
            OSError: the system refused.
        """
        os.fsync(self.fd)
        folder = self._place.folder_fd
        if not replace:
            try:
                os.link(self._temporary, self._place.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                return
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                    raise
            # A file system without hard links: the check and the rename are two steps there.
            if self._place.stat() is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(self._temporary, self._place.name, src_dir_fd=folder, dst_dir_fd=folder)


class Place:
    """A name in an opened folder: checks and acts on the same folder, wherever that is moved meanwhile."""

    def __init__(self, folder_fd: int, name: bytes, *, grant: bool = False) -> None:
        self.folder_fd = folder_fd
        self.name = name
        self._grant = grant

    def stat(self) -> os.stat_result | None:
        """The entry's own status, None if there is none."""
        try:
            return os.lstat(self.name, dir_fd=self.folder_fd)
        except FileNotFoundError:
            return None

    def open_file(self) -> int:
        """A descriptor to read a regular file; never waits, never follows.

        Raises:
            NotRegularError: it is something else. OSError: missing, a link (ELOOP), or not permitted.
        """
        # The first look keeps a device or FIFO from being opened at all; the second is the one that counts.
        before = os.lstat(self.name, dir_fd=self.folder_fd)
        if stat.S_ISREG(before.st_mode) or stat.S_ISLNK(before.st_mode):
            fd = self._open()
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return fd
            os.close(fd)
        raise NotRegularError(errno.EINVAL, "is not a regular file", decode(self.name))

    def _open(self) -> int:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            return os.open(self.name, flags, dir_fd=self.folder_fd)
        except PermissionError:
            if not self._grant:
                raise
            grant_owner(self.folder_fd, self.name)
            return os.open(self.name, flags, dir_fd=self.folder_fd)

    def read_bytes(self, limit_bytes: int) -> bytes:
        """At most `limit_bytes` from the start of a regular file. Raises as `open_file`."""
        fd = self.open_file()
        with os.fdopen(fd, "rb", closefd=True) as file:
            return file.read(limit_bytes)

    def readlink(self) -> str:
        """What a link says, as text. Raises OSError (EINVAL) when it is no link."""
        return decode(os.readlink(self.name, dir_fd=self.folder_fd))

    def create_file(self) -> int:
        """A descriptor of a new, empty file of mode 0600; raises FileExistsError when anything is there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.name, flags, 0o600, dir_fd=self.folder_fd)

    def unlink(self) -> None:
        """Remove the name; a link goes, not what it points to."""
        os.unlink(self.name, dir_fd=self.folder_fd)

    def rmdir(self) -> None:
        """Remove an empty folder."""
        os.rmdir(self.name, dir_fd=self.folder_fd)

    def mkdir(self, mode: int) -> None:
        """Make a folder; raises FileExistsError when anything is there."""
        os.mkdir(self.name, mode, dir_fd=self.folder_fd)

    def symlink(self, target: str) -> None:
        """Make a link with exactly this text; raises FileExistsError when anything is there."""
        os.symlink(target.encode("utf-8", "surrogateescape"), self.name, dir_fd=self.folder_fd)

    def mkfifo(self) -> None:
        """Make a FIFO of mode 0600; raises FileExistsError when anything is there."""
        os.mkfifo(self.name, 0o600, dir_fd=self.folder_fd)

    def mknod(self, mode: int, device: int) -> None:
        """Make a device node, `mode` with its type; raises PermissionError for all but root."""
        os.mknod(self.name, mode, device, dir_fd=self.folder_fd)

    def dress(self, uid: int, gid: int, mode: int) -> None:
        """Give an entry that is neither link nor to be opened its owner (-1 keeps one) and mode."""
        fd = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder_fd)
        try:
            os.chown(f"/proc/self/fd/{fd}", uid, gid)
            os.chmod(f"/proc/self/fd/{fd}", mode)  # by the descriptor's own name, which nobody can swap
        finally:
            os.close(fd)

    def rename_to(self, other: Place) -> None:
        """Move within or between opened folders, replacing what is there if the system allows it."""
        os.rename(self.name, other.name, src_dir_fd=self.folder_fd, dst_dir_fd=other.folder_fd)

    def rename_new(self, other: Place) -> None:
        """Move to a name where nothing is; raises FileExistsError when something is there."""
        rename = getattr(_libc(), "renameat2", None)  # missing in an old C library
        if rename is not None:
            if rename(self.folder_fd, self.name, other.folder_fd, other.name, _RENAME_NOREPLACE) == 0:
                return
            code = ctypes.get_errno()
            if code not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(code, os.strerror(code), decode(other.name))
        # A file system that does not know the flag either: the check and the rename are two steps there.
        if other.stat() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.rename_to(other)

    def stage(self, prefix: str) -> Staged:
        """Begin an atomic write: a new file of mode 0600 with an unguessable name beside this one."""
        return Staged(self, prefix)


class OpenPlace(Place):
    """A `Place` that owns its folder's descriptor, as a context."""

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.folder_fd)
