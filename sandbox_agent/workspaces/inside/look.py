"""Walking the tree and giving out its files."""

from __future__ import annotations

import errno
import os
import stat
import time

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.below import HANDLE, Below, self_path

MAX_DEPTH = 200
"""Folders nested deeper are not walked; `find`, which does it where it can, is told the same."""

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Look:
    """Answers what is there."""

    def __init__(self, below: Below) -> None:
        self.below = below

    def walk(self, start: bytes) -> None:
        """Tell everything below a folder, in the form that `find` is asked for by the host."""
        pending, out, size = [start], [], 0
        if not start:
            out.append(record(b"d", os.fstat(self.below.root)) + b" \0\0")
        while pending:
            path = pending.pop()
            for info, name, target in self.listing(path):
                kind = letter(info.st_mode)
                if kind == b"d" and name.count(b"/") < MAX_DEPTH - 1:
                    pending.append(name)
                out.append(record(kind, info) + b" " + name + b"\0" + target + b"\0")
                size += len(out[-1])
                if size > wire.CHUNK:
                    wire.send(wire.WALKED, b"".join(out))
                    out, size = [], 0
        wire.send(wire.WALKED, b"".join(out))
        self.below.revoke()
        wire.send(wire.END)

    def listing(self, path: bytes) -> list[tuple[os.stat_result, bytes, bytes]]:
        found = []
        try:
            through = self.below.folder(path, 0o500)
            try:
                fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=through)
            finally:
                os.close(through)
        except OSError:
            return []
        try:
            for text in os.listdir(fd):
                name = os.fsencode(text)
                try:
                    info = os.lstat(name, dir_fd=fd)
                    target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(info.st_mode) else b""
                except OSError:
                    continue
                found.append((info, path + b"/" + name if path else name, target))
        finally:
            os.close(fd)
        return found

    def give_all(self, body: bytes) -> None:
        """Give out several files, none with more data than the limit that comes first."""
        for path in body[wire.OFFSET.size :].split(b"\0"):
            self.give(path, wire.OFFSET.unpack_from(body)[0])
        self.below.revoke()
        wire.send(wire.END)

    def give(self, path: bytes, limit: int) -> None:
        """Give out one regular file: its state, its data without the holes, its state after that."""
        try:
            fd = self.readable(path)
        except OSError as exc:
            wire.send(wire.FAULT, b"%d" % (exc.errno or 0))
            return
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                wire.send(wire.FAULT, b"%d" % errno.EINVAL)
                return
            wire.send(wire.STATE, b"%d " % time.time_ns() + record(b"f", info))
            if not self.data(fd, info, limit):
                wire.send(wire.FAULT, b"%d" % errno.EFBIG)
                return
            wire.send(wire.STATE_AFTER, record(b"f", os.fstat(fd)))
        except OSError as exc:
            wire.send(wire.FAULT, b"%d" % (exc.errno or 0))
        finally:
            os.close(fd)

    def readable(self, path: bytes) -> int:
        try:
            return self.below.entry(path, READ)
        except PermissionError:
            pass
        handle = self.below.entry(path, HANDLE)
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "not a regular file")
            os.chmod(self_path(handle), stat.S_IMODE(mode) | 0o400)
            try:
                return os.open(self_path(handle), os.O_RDONLY | os.O_CLOEXEC)
            finally:
                os.chmod(self_path(handle), stat.S_IMODE(mode))
        finally:
            os.close(handle)

    def data(self, fd: int, info: os.stat_result, limit: int) -> bool:
        """Send what lies in the file; False when it holds more than `limit`."""
        position, size, sent = 0, info.st_size, 0
        sparse = info.st_blocks * 512 < size
        while position < size:
            end = size
            if sparse:
                try:
                    position = os.lseek(fd, position, os.SEEK_DATA)
                    end = min(size, os.lseek(fd, position, os.SEEK_HOLE))
                except OSError as exc:
                    if exc.errno != errno.ENXIO:
                        raise
                    break
            while position < end:
                piece = os.pread(fd, min(wire.CHUNK, end - position), position)
                sent += len(piece)
                if not piece or sent > limit:
                    return not piece
                wire.send(wire.DATA, wire.OFFSET.pack(position) + piece)
                position += len(piece)
        return True


def letter(mode: int) -> bytes:
    """The letter that `find` has for a sort of file."""
    for test, found in ((stat.S_ISREG, b"f"), (stat.S_ISDIR, b"d"), (stat.S_ISLNK, b"l"), (stat.S_ISFIFO, b"p")):
        if test(mode):
            return found
    for test, found in ((stat.S_ISSOCK, b"s"), (stat.S_ISCHR, b"c"), (stat.S_ISBLK, b"b")):
        if test(mode):
            return found
    return b"?"


def record(kind: bytes, info: os.stat_result) -> bytes:
    """As `find -printf` writes it."""
    times = (*divmod(info.st_mtime_ns, 10**9), *divmod(info.st_ctime_ns, 10**9))
    numbers = (info.st_uid, info.st_gid, info.st_nlink, info.st_ino, info.st_size, *times)
    return kind + b" %o " % stat.S_IMODE(info.st_mode) + b"%d %d %d %d %d %d.%09d0 %d.%09d0" % numbers
