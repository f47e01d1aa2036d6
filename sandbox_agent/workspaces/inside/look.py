"""Walking the tree and giving out its files."""

from __future__ import annotations

import errno
import os
import stat
import time

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.below import HANDLE, Below, self_path
from sandbox_agent.workspaces.inside.entry import facts_of, record, target_of
from sandbox_agent.workspaces.inside.walk import TooManyError, Walk

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Look:
    """Answers what is there."""

    def __init__(self, below: Below, out: wire.Out) -> None:
        self.below = below
        self.out = out
        self.tree = Walk(below)

    def walk(self, body: bytes) -> None:
        """Tell what is in the tree: everything the first time (or if asked), after that what differs from the last.

        `body` is "all" or "since", and paths to be told again in any case; or "only", and the only ones to tell.
        """
        how, *doubted = body.split(b"\0")
        if how == b"only":
            self.tell_again(doubted)
            self.out.send(wire.END, b"since")
            return
        try:
            told = self.tree.take(how == b"all")
        except TooManyError:
            self.out.send(wire.END, b"many")
            return
        self.out.send_joined(wire.WALKED, told.fresh)
        self.below.revoke()
        if not told.whole:
            self.tell_again(doubted)
            self.out.send_joined(wire.GONE, told.gone)
        self.out.send(wire.END, b"all" if told.whole else b"since")

    def tell_again(self, paths: list[bytes]) -> None:
        """Tell some entries as they are now."""
        self.out.send_joined(wire.WALKED, (text for path in paths for text in self.told(path)))
        self.below.revoke()

    def told(self, path: bytes) -> list[bytes]:
        """One entry as it is now, in the form of a walk; nothing when it is gone."""
        try:
            fd = self.below.entry(path, HANDLE)
        except OSError:
            return []
        try:
            info = os.fstat(fd)
            mode = self.below.granted.get(path, stat.S_IMODE(info.st_mode))
            plain = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
            target = self.below.attributes(path) if plain else target_of(info, b"", fd)
            return [record(facts_of(info), path, mode) + b"\0" + target + b"\0"]
        finally:
            os.close(fd)

    def give_all(self, body: bytes) -> None:
        """Give out several files, none with more data than the limit that comes first."""
        for path in body[wire.OFFSET.size :].split(b"\0"):
            self.give(path, wire.OFFSET.unpack_from(body)[0])
        self.below.revoke()
        self.out.send(wire.END)

    def give(self, path: bytes, limit: int) -> None:
        """Give out one regular file: its state, its data without the holes, its state after that."""
        try:
            fd = self.readable(path)
        except OSError as exc:
            self.out.send(wire.FAULT, b"%d" % (exc.errno or 0))
            return
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                self.out.send(wire.FAULT, b"%d" % errno.EINVAL)
                return
            if info.st_size <= min(limit, wire.SMALL) and self.small(fd, info):
                return
            self.out.send(wire.STATE, b"%d " % time.time_ns() + record(facts_of(info), b""))
            if not self.data(fd, info, limit):
                self.out.send(wire.FAULT, b"%d" % errno.EFBIG)
                return
            self.out.send(wire.STATE_AFTER, record(facts_of(os.fstat(fd)), b""))
        except OSError as exc:
            self.out.send(wire.FAULT, b"%d" % (exc.errno or 0))
        finally:
            os.close(fd)

    def small(self, fd: int, info: os.stat_result) -> bool:
        """Give out a file in one frame; False when it is not as long as it was."""
        now, data = time.time_ns(), os.pread(fd, info.st_size + 1, 0)
        if len(data) != info.st_size:
            return False
        states = (record(facts_of(info), b""), record(facts_of(os.fstat(fd)), b""))
        self.out.send(wire.WHOLE, b"%d\0%b\0%b\0%b" % (now, *states, data))
        return True

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
        if not sparse and size > limit:
            return False  # at once: reading up to the limit first would hold up the next call for nothing
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
                self.out.send(wire.DATA, wire.OFFSET.pack(position) + piece)
                position += len(piece)
        return True
