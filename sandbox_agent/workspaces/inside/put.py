"""Putting a tree back as it was, one step after the other."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.attributes import ACL_ACCESS, adjust, names_of, parsed, set_mode
from sandbox_agent.workspaces.inside.below import FOLDER, HANDLE, Below, self_path

MAX_FAULTS = 200
ASIDE_PREFIX = b".sandbox-agent-"


class Put:
    """The steps of a restore. A fault is noted and told at the end; the host then looks what came of it all."""

    def __init__(self, below: Below, out: wire.Out) -> None:
        self.below = below
        self.out = out
        self.faults: list[bytes] = []
        self.file = -1

    def act(self, kind: bytes, body: bytes) -> None:
        """One step."""
        path, _, rest = body.partition(b"\0")
        try:
            if kind == wire.ATTRIBUTES:
                self.attributes(path, rest)
                return
            above, _, name = path.rpartition(b"/")
            self.make(kind, self.below.near(above, 0o700), name, rest)
        except OSError as exc:
            self.fault(path, exc.errno or 0)

    def fault(self, path: bytes, number: int) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(b"%d %b\0" % (number, path))

    def make(self, kind: bytes, fd: int, name: bytes, rest: bytes) -> None:
        if kind == wire.REMOVE:
            self.remove(fd, name)
        elif kind == wire.FOLDER:
            os.mkdir(name, 0o700, dir_fd=fd)
        elif kind == wire.FILE:
            self.file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd)
        elif kind == wire.WHOLE:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd)
            with os.fdopen(file, "wb", buffering=0) as whole:
                while rest:
                    rest = rest[whole.write(rest) :]
        elif kind == wire.LINK:
            above, _, first = rest.rpartition(b"/")
            source = self.below.folder(above, 0o700)
            try:
                os.link(first, name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)
            finally:
                os.close(source)
        elif kind == wire.SYMLINK:
            os.symlink(rest, name, dir_fd=fd)
        elif kind == wire.FIFO:
            os.mkfifo(name, 0o600, dir_fd=fd)

    def write(self, body: bytes) -> None:
        if self.file >= 0:
            offset, data = wire.OFFSET.unpack_from(body)[0], memoryview(body)[wire.OFFSET.size :]
            try:
                while data:
                    written = os.pwrite(self.file, data, offset)
                    data, offset = data[written:], offset + written
            except OSError as exc:
                self.fault(b"", exc.errno or 0)

    def finish_file(self, body: bytes) -> None:
        if self.file >= 0:
            try:
                os.ftruncate(self.file, wire.OFFSET.unpack(body)[0])
            except OSError as exc:
                self.fault(b"", exc.errno or 0)
            os.close(self.file)
            self.file = -1

    def attributes(self, path: bytes, rest: bytes) -> None:
        mode, mtime_ns, gid, attributes = rest.split(b" ")
        times = (int(mtime_ns), int(mtime_ns))
        fd = self.below.entry(path, HANDLE, 0o700)
        try:
            info = os.fstat(fd)
            if not stat.S_ISLNK(info.st_mode):
                if info.st_gid != int(gid):
                    with contextlib.suppress(PermissionError):  # only root can; the host sees to it afterwards
                        os.chown(self_path(fd), -1, int(gid))
                self.attribute(fd, info, parsed(attributes), int(mode, 8))
                self.below.granted.pop(path, None)
                os.utime(self_path(fd), ns=times)
                return
        finally:
            os.close(fd)
        above, _, name = path.rpartition(b"/")
        parent = self.below.folder(above, 0o700)
        try:
            if info.st_gid != int(gid):
                with contextlib.suppress(PermissionError):
                    os.chown(name, -1, int(gid), dir_fd=parent, follow_symlinks=False)
            os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)

    def attribute(self, fd: int, info: os.stat_result, wanted: dict[str, bytes], mode: int) -> None:
        """Extended attributes and mode. The former may take the right to write, a list of rights sets the latter."""
        place = self_path(fd)
        plain = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
        if plain and self.below.keeps_attributes and (wanted or names_of(place, follow=True)):
            set_mode(place, stat.S_IMODE(info.st_mode) | 0o600)
            adjust(place, wanted)
        set_mode(place, mode)
        if ACL_ACCESS in wanted:
            os.setxattr(place, ACL_ACCESS, wanted[ACL_ACCESS])

    def remove(self, fd: int, name: bytes) -> None:
        """Remove an entry with all below it. Folders are moved up and emptied there: no recursion, however deep."""
        pending = [name]
        while pending:
            one = pending.pop()
            if not stat.S_ISDIR(os.lstat(one, dir_fd=fd).st_mode):
                os.unlink(one, dir_fd=fd)
                continue
            inner = self.emptied(fd, one)
            try:
                for text in os.listdir(inner):
                    below = os.fsencode(text)
                    if not stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):
                        os.unlink(below, dir_fd=inner)
                        continue
                    os.close(self.emptied(inner, below))
                    aside = ASIDE_PREFIX + os.urandom(8).hex().encode()
                    try:
                        os.rename(below, aside, src_dir_fd=inner, dst_dir_fd=fd)
                        pending.append(aside)
                    except OSError as exc:
                        if exc.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
                            raise
                        self.remove(inner, below)  # a folder of an overlay's lower layer, or somebody else's
            finally:
                os.close(inner)
            os.rmdir(one, dir_fd=fd)

    def emptied(self, fd: int, name: bytes) -> int:
        """A descriptor of a folder that is going to be emptied, with all rights on it."""
        handle = os.open(name, FOLDER, dir_fd=fd)
        try:
            if os.fstat(handle).st_mode & 0o700 != 0o700:
                os.chmod(self_path(handle), 0o700)
            return os.open(self_path(handle), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(handle)

    def finish(self) -> None:
        """Take back what was granted and tell the faults."""
        self.below.revoke()
        faults, self.faults = self.faults, []
        self.out.send(wire.DONE, b"".join(faults))
