"""The file verbs: resolve, read, and compare-and-swap, all by descriptors so that a race of links cannot redirect them.

Runs in the container (see the package), at the tools' uid: what the kernel refuses a command it refuses here too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import NamedTuple

from sandbox_agent.sandboxes.runner import names, wire

MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_HASHED_BYTES = 1024 * 1024 * 1024
"""A file beyond this is refused: hashing it would take longer than anyone waits, and a sparse 1 TiB costs nothing."""

INLINE_BYTES = 256 * 1024
"""Up to here a file is worked on in the runner's own process; beyond, in a process of its own."""

_PIECE_BYTES = 1024 * 1024
_NEW_FILE_MODE = 0o644
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class RefusedError(Exception):
    """The verb cannot be done; `why` is one of the FAIL_ numbers of the wire."""

    def __init__(self, why: int, number: int, text: str) -> None:
        super().__init__(text)
        self.why = why
        self.number = number


class TooLargeHereError(Exception):
    """The file is beyond what the caller's process should take on."""


class Content(NamedTuple):
    """What META says, and the piece of the file that was asked for."""

    mode: int
    size: int
    digest: bytes
    data: bytes = b""

    def frames(self, call: int) -> list[bytes]:
        body = wire.META_BODY.pack(self.mode, self.size, len(self.data), self.digest)
        return [
            wire.frame(wire.META, call, body),
            *wire.pieces(wire.STDOUT, call, self.data),
            wire.frame(wire.DONE, call),
        ]


def resolve(path: bytes) -> bytes:
    """Body of a PATH frame: what the path is with links followed, and where it leads."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return wire.PATH_BODY.pack(wire.KIND_MISSING, 0, 0, 0) + _lexical(path)
    try:
        info = os.fstat(fd)
        resolved = _place(fd)
    finally:
        os.close(fd)
    kind = wire.KIND_OTHER
    if stat.S_ISREG(info.st_mode):
        kind = wire.KIND_FILE
    elif stat.S_ISDIR(info.st_mode):
        kind = wire.KIND_DIRECTORY
    mtime_ns = max(0, info.st_mtime_ns)
    return wire.PATH_BODY.pack(kind, info.st_size, stat.S_IMODE(info.st_mode), mtime_ns) + resolved


def read(path: bytes, offset: int, limit: int | None, resolved: bytes | None, most: int) -> Content:
    """A piece of a regular file with the hash of the whole.

    Raises:
        TooLargeHereError: the file has more than `most` bytes.
        RefusedError, OSError: see the contract of `read_file`.
    """
    with _Descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as place:
        if resolved is not None and _place(place) != resolved:
            raise _path_changed(_place(place), resolved)
        info = _regular(place)
        # Only now is it opened, and by descriptor: opening a FIFO or a device by name could wait or act.
        with _Descriptor(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | _FLAGS)) as fd:
            end = MAX_HASHED_BYTES if limit is None else offset + limit
            wanted = max(0, min(info.st_size, end) - offset)
            if wanted > MAX_FILE_BYTES:
                text = f"{wanted} bytes would be read, at most {MAX_FILE_BYTES} are"
                raise RefusedError(wire.FAIL_TOO_LARGE, errno.EFBIG, text)
            size, digest, data = _hash(fd, info.st_size, most, offset, end)
            return Content(stat.S_IMODE(info.st_mode), size, digest, data)


def replace(path: bytes, data: bytes, expected: bytes | None, resolved: bytes | None, most: int) -> Content:
    """Compare and swap: write `data` if the content now has the hash `expected`, or if there is none and it is None.

    Raises:
        TooLargeHereError: the file there now has more than `most` bytes; nothing was done.
        RefusedError, OSError: see the contract of `replace_file`.
    """
    try:
        real = _place_of(path)
        exists = True
    except FileNotFoundError:
        real = _lexical(path)
        exists = False
    if resolved is not None and real != resolved:
        raise _path_changed(real, resolved)
    if not exists:
        return _create(path, real, data, expected)
    parent, name = os.path.split(real)
    with _Descriptor(_open_folder(parent)) as folder, _Descriptor(_open_place(name, folder)) as place:
        before = _regular(place)
        if path.endswith(b"/"):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with _Descriptor(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | _FLAGS)) as fd:
            digest = _hash(fd, before.st_size, most, 0, 0)[1]
        if expected is None or digest != expected:
            text = "its content is not the expected one" if expected else "a file is there, and none was expected"
            raise RefusedError(wire.FAIL_FILE_CHANGED, errno.ESTALE, text)
        if not os.access(f"/proc/self/fd/{place}", os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mode = stat.S_IMODE(before.st_mode) & 0o777
        if before.st_nlink > 1 or not _swap(folder, name, data, before, mode):
            _overwrite(place, data)
            names.rejoin(real, before)
    return Content(mode, len(data), hashlib.sha256(data).digest())


class _Descriptor:
    """An open descriptor for the length of a `with`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _place(fd: int) -> bytes:
    """Where a descriptor is, in the kernel's own words."""
    return os.readlink(f"/proc/self/fd/{fd}".encode())


def _place_of(path: bytes) -> bytes:
    with _Descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as fd:
        return _place(fd)


def _lexical(path: bytes) -> bytes:
    """Where a missing path would be: the links of its existing parents followed, the rest kept."""
    try:
        return os.path.realpath(path)
    except (OSError, RecursionError):
        return os.path.normpath(path)


def _path_changed(now: bytes, before: bytes) -> RefusedError:
    text = f"it leads to {os.fsdecode(now)} now, not to {os.fsdecode(before)}"
    return RefusedError(wire.FAIL_PATH_CHANGED, errno.ESTALE, text)


def _regular(fd: int) -> os.stat_result:
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise RefusedError(wire.FAIL_NOT_REGULAR, errno.EINVAL, "it is a FIFO, socket or device, not a regular file")
    return info


def _hash(fd: int, size: int, most: int, offset: int, end: int) -> tuple[int, bytes, bytes]:
    """Size and hash of everything that can be read, and the bytes from `offset` to `end`.

    The size of the file says little: files in /proc have none, and others grow while they are read.
    """
    if size > most:
        raise TooLargeHereError
    digest = hashlib.sha256()
    kept: list[bytes] = []
    position = 0
    while True:
        piece = os.read(fd, _PIECE_BYTES)
        if not piece:
            return position, digest.digest(), b"".join(kept)
        digest.update(piece)
        if position < end and position + len(piece) > offset:
            kept.append(piece[max(0, offset - position) : end - position])
        position += len(piece)
        if position > most:
            raise TooLargeHereError


def _open_place(name: bytes, folder: int) -> int:
    return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _open_folder(path: bytes) -> int:
    """The folder at exactly this place: a link that appeared in the way is noticed."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    now = _place(fd)
    if now != path:
        os.close(fd)
        raise _path_changed(now, path)
    return fd


def _create(path: bytes, real: bytes, data: bytes, expected: bytes | None) -> Content:
    if expected is not None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if path.endswith(b"/"):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    parent, name = os.path.split(real)
    os.makedirs(parent, exist_ok=True)
    with _Descriptor(_open_folder(parent)) as folder:
        draft = _draft(folder, data, _NEW_FILE_MODE)
        try:
            # A link fails where the name is taken, a rename would replace what came meanwhile.
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError as exc:
            text = "a file came there meanwhile"
            raise RefusedError(wire.FAIL_FILE_CHANGED, errno.ESTALE, text) from exc
        finally:
            os.unlink(draft, dir_fd=folder)
    return Content(_NEW_FILE_MODE, len(data), hashlib.sha256(data).digest())


def _draft(folder: int, data: bytes, mode: int) -> bytes:
    """A new file of a random name with this content; nothing stays if it cannot be written whole."""
    name = b".sandbox-agent-" + os.urandom(8).hex().encode()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _write(fd, data)
        os.fchmod(fd, mode)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(fd)
    return name


def _swap(folder: int, name: bytes, data: bytes, before: os.stat_result, mode: int) -> bool:
    """Put a new file in the old one's place; False where that would change its owner or the folder takes no files."""
    try:
        draft = _draft(folder, data, mode)
    except PermissionError:
        return False
    try:
        new = os.stat(draft, dir_fd=folder, follow_symlinks=False)
        if (new.st_uid, new.st_gid) != (before.st_uid, before.st_gid):
            try:
                os.chown(draft, before.st_uid, before.st_gid, dir_fd=folder, follow_symlinks=False)
                os.chmod(draft, mode, dir_fd=folder)
            except PermissionError:
                os.unlink(draft, dir_fd=folder)
                return False
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if _version(now) != _version(before):
            raise RefusedError(wire.FAIL_FILE_CHANGED, errno.ESTALE, "it changed meanwhile")
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except (OSError, RefusedError):
        os.unlink(draft, dir_fd=folder)
        raise
    return True


def _version(info: os.stat_result) -> tuple[int, int, int, int, int]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _overwrite(place: int, data: bytes) -> None:
    """Write into the file itself, so that its other names and its owner stay; room is taken before a byte changes."""
    with _Descriptor(os.open(f"/proc/self/fd/{place}", os.O_RDWR | _FLAGS)) as fd:
        size = os.fstat(fd).st_size
        if data:
            try:
                os.posix_fallocate(fd, 0, len(data))
            except OSError as exc:
                os.ftruncate(fd, size)
                if exc.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        _write(fd, data)
        os.ftruncate(fd, len(data))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
