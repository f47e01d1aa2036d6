"""Walking the tree and giving out its files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.below import HANDLE, Below, self_path

MAX_DEPTH = 200
"""Folders nested deeper are not walked."""

MAX_BYTES = 512 * 1024 * 1024
KEPT_RECORDS = 300_000
"""As many are remembered from walk to walk, in the container's memory; a larger tree is told whole each time."""

FORMAT = r"%y %m %U %G %n %i %s %T@ %C@ %P\0%l\0"
FIELDS = 9
PIPE_BYTES = 1024 * 1024
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Look:
    """Answers what is there."""

    def __init__(self, below: Below, out: wire.Out, root: str) -> None:
        self.below = below
        self.out = out
        self.root = root
        self.seen: dict[bytes, bytes] | None = None

    def walk(self, body: bytes) -> None:
        """Tell what is in the tree: everything the first time (or if asked), after that what differs from the last.

        `body` is "all" or "since", and paths to be told again in any case; or "only", and the only ones to tell.
        """
        how, *doubted = body.split(b"\0")
        if how == b"only":
            self.out.send_joined(wire.WALKED, [text for path in doubted for text in self.told(path)])
            self.below.revoke()
            self.out.send(wire.END, b"since")
            return
        found = self.records()
        old = self.seen if how == b"since" else None
        if old is None:
            self.out.send_joined(wire.WALKED, [b"%b\0%b\0" % record for record in found.items()])
        else:
            fresh = [b"%b\0%b\0" % (record, found[record]) for record in found.keys() - old.keys()]
            self.out.send_joined(wire.WALKED, fresh + [text for path in doubted for text in self.told(path)])
            self.out.send_joined(wire.GONE, [b"%b\0" % record for record in old.keys() - found.keys()])
            self.below.revoke()
        self.seen = found if len(found) <= KEPT_RECORDS else None
        self.out.send(wire.END, b"all" if old is None else b"since")

    def records(self) -> dict[bytes, bytes]:
        """All entries: record to link target. `find` is quicker; folders that it cannot enter are opened up here."""
        found = self.by_find()
        if found is None:
            return dict([(record(b"d", os.fstat(self.below.root), b""), b""), *self.by_hand(b"")])
        own = b"%d" % os.geteuid()
        for folder in [head.split(b" ", FIELDS) for head in found if head[:1] == b"d"]:
            if folder[2] == own and int(folder[1], 8) & 0o500 != 0o500:
                found.update(self.by_hand(folder[FIELDS]))
        return found

    def by_find(self) -> dict[bytes, bytes] | None:
        """What `find` prints, taken apart as it comes; None where there is none, it is another one, or was killed."""
        out, end = os.pipe()
        with contextlib.suppress(OSError):  # a larger pipe spares both sides most of their waits
            fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        arguments = ["find", self.root, "-xdev", "-maxdepth", str(MAX_DEPTH), "-printf", FORMAT]
        null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 2)]
        try:
            actions = [*null, (os.POSIX_SPAWN_DUP2, end, 1)]
            pid = os.posix_spawnp("find", arguments, os.environ, file_actions=actions)
        except OSError:
            os.close(out)
            return None
        finally:
            os.close(end)
        found: dict[bytes, bytes] = {}
        rest, size = b"", 0
        with os.fdopen(out, "rb", buffering=0) as pipe:
            while size <= MAX_BYTES and (data := pipe.read(PIPE_BYTES)):
                size += len(data)
                parts = (rest + data).split(b"\0")
                whole = (len(parts) - 1) // 2 * 2
                found.update(zip(parts[0:whole:2], parts[1:whole:2]))  # noqa: B905 - Python before 3.10 has no `strict`
                rest = b"\0".join(parts[whole:])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # 1 is also said when a file went away meanwhile, or a folder is closed.
        return found if code in (0, 1) and found and not rest else None

    def by_hand(self, start: bytes) -> list[tuple[bytes, bytes]]:
        """Everything below a folder, whatever the modes."""
        pending, found = [start], []
        while pending:
            path = pending.pop()
            for info, name, target in self.listing(path):
                kind = letter(info.st_mode)
                if kind == b"d" and name.count(b"/") < MAX_DEPTH - 1:
                    pending.append(name)
                found.append((record(kind, info, name), target))
        self.below.revoke()
        return found

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

    def told(self, path: bytes) -> list[bytes]:
        """One entry as it is now, in the form of a walk; nothing when it is gone."""
        try:
            fd = self.below.entry(path, HANDLE)
        except OSError:
            return []
        try:
            info = os.fstat(fd)
            target = os.readlink(b"", dir_fd=fd) if stat.S_ISLNK(info.st_mode) else b""
            mode = self.below.granted.get(path, stat.S_IMODE(info.st_mode))
            return [record(letter(info.st_mode), info, path, mode) + b"\0" + target + b"\0"]
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
            self.out.send(wire.STATE, b"%d " % time.time_ns() + record(b"f", info, b""))
            if not self.data(fd, info, limit):
                self.out.send(wire.FAULT, b"%d" % errno.EFBIG)
                return
            self.out.send(wire.STATE_AFTER, record(b"f", os.fstat(fd), b""))
        except OSError as exc:
            self.out.send(wire.FAULT, b"%d" % (exc.errno or 0))
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
                self.out.send(wire.DATA, wire.OFFSET.pack(position) + piece)
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


def record(kind: bytes, info: os.stat_result, path: bytes, mode: int | None = None) -> bytes:
    """As `find -printf` writes it; `mode` is what it was before we granted ourselves more."""
    mode = stat.S_IMODE(info.st_mode) if mode is None else mode
    times = (*divmod(info.st_mtime_ns, 10**9), *divmod(info.st_ctime_ns, 10**9))
    numbers = (info.st_uid, info.st_gid, info.st_nlink, info.st_ino, info.st_size, *times, path)
    return kind + b" %o " % mode + b"%d %d %d %d %d %d.%09d0 %d.%09d0 %b" % numbers
