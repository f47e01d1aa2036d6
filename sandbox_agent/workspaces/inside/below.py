"""Ways to the entries below one folder, never through a link, with missing rights granted for the moment."""

from __future__ import annotations

import errno
import os
import stat

from sandbox_agent.workspaces.inside.attributes import names_of, set_mode, text_of

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def self_path(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


class Below:
    """Everything below one folder. Paths are relative, b"" is the folder itself.

    What the owner took from itself (`chmod 000`) is granted where it is needed, and taken away again by `revoke`.
    """

    def __init__(self, root: str) -> None:
        self.root = os.open(root, FOLDER)
        self.granted: dict[bytes, int] = {}
        try:
            os.listxattr(self_path(self.root))
            self.keeps_attributes = True
        except OSError as exc:
            self.keeps_attributes = exc.errno != errno.ENOTSUP
        self.last: tuple[bytes, int] | None = None
        self.last_fd = -1

    def grant(self, fd: int, path: bytes, bits: int) -> None:
        """Make sure that its owner, whom we run as, has these bits on an opened entry; noted, to be taken back."""
        info = os.fstat(fd)
        if info.st_uid == os.geteuid() and info.st_mode & bits != bits:
            set_mode(self_path(fd), stat.S_IMODE(info.st_mode) | bits)
            self.granted.setdefault(path, stat.S_IMODE(info.st_mode))

    def attributes(self, path: bytes) -> bytes:
        """The extended attributes of a file or folder, as text; none where it went away meanwhile."""
        if not self.keeps_attributes:
            return b""
        place = f"{self_path(self.root)}/{os.fsdecode(path)}"
        try:
            return text_of(place)
        except OSError as exc:
            if exc.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
                return b""
        try:
            fd = self.entry(path, HANDLE)
        except OSError:
            return b""
        try:
            if names_of(self_path(fd), follow=True):
                self.grant(fd, path, 0o400)
            return text_of(self_path(fd), follow=True)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def revoke(self) -> None:
        """Take back what was granted, deepest first. Ends every request."""
        for path, mode in sorted(self.granted.items(), reverse=True):
            try:
                fd = self.entry(path, HANDLE)
            except OSError:
                continue  # it was removed meanwhile
            try:
                if not stat.S_ISLNK(os.fstat(fd).st_mode):
                    set_mode(self_path(fd), mode)
            finally:
                os.close(fd)
        self.granted.clear()
        self.forget()

    def near(self, path: bytes, bits: int) -> int:
        """As `folder`, but it stays open: what comes next is mostly in it, too. It is not the caller's to close."""
        if self.last != (path, bits):
            self.forget()
            self.last_fd = self.folder(path, bits)
            self.last = (path, bits)
        return self.last_fd

    def forget(self) -> None:
        """Let go of the folder that `near` holds open: it may be another one by now, or closed to us."""
        if self.last is not None:
            os.close(self.last_fd)
            self.last = None

    def folder(self, path: bytes, bits: int) -> int:
        """A descriptor of a folder that we may go through, with more rights if `bits` says so."""
        fd = os.dup(self.root)
        done = b""
        self.grant(fd, done, bits)
        for part in path.split(b"/") if path else ():
            try:
                deeper = os.open(part, FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd, done = deeper, done + b"/" + part if done else part
            try:
                self.grant(fd, done, bits)
            except OSError:
                os.close(fd)
                raise
        return fd

    def entry(self, path: bytes, flags: int, bits: int = 0o100) -> int:
        """Open one entry; its folder is granted `bits`."""
        if not path:
            return os.dup(self.root)  # opening "." would take the right to go through it
        above, _, name = path.rpartition(b"/")
        return os.open(name, flags, 0o600, dir_fd=self.near(above, bits))
