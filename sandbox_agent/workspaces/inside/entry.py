"""One entry of the tree in the form in which the host is told of it."""

from __future__ import annotations

import os
import stat

FIELDS = 9
"""How many numbers stand before the path."""

SECOND_NS = 10**9

Facts = tuple[tuple[int, ...], int, int]
"""What tells that an entry changed: mode, inode, device, links, uid, gid and size; then mtime and ctime in ns."""


def facts_of(info: os.stat_result) -> Facts:
    """Those of a status."""
    return info[:7], info.st_mtime_ns, info.st_ctime_ns


def letter(mode: int) -> bytes:
    """The letter that `find` has for a sort of file."""
    for test, found in ((stat.S_ISREG, b"f"), (stat.S_ISDIR, b"d"), (stat.S_ISLNK, b"l"), (stat.S_ISFIFO, b"p")):
        if test(mode):
            return found
    for test, found in ((stat.S_ISSOCK, b"s"), (stat.S_ISCHR, b"c"), (stat.S_ISBLK, b"b")):
        if test(mode):
            return found
    return b"?"


def target_of(info: os.stat_result, name: str | bytes, fd: int) -> bytes:
    """What stands behind a record: where a link leads, which device one is. `fd` is of the folder, or the entry."""
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(os.fsencode(name), dir_fd=fd)
    if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
        return b"%d:%d" % (os.major(info.st_rdev), os.minor(info.st_rdev))
    return b""


def record(facts: Facts, path: bytes, mode: int | None = None) -> bytes:
    """An entry without its target; `mode` is what it was before we granted ourselves more."""
    (found, inode, place, links, uid, gid, size), mtime_ns, ctime_ns = facts
    if links > 1:
        inode |= place << 64  # layers of an overlay may be on several file systems, where two files have one number
    times = (*divmod(mtime_ns, SECOND_NS), *divmod(ctime_ns, SECOND_NS))
    numbers = (stat.S_IMODE(found) if mode is None else mode, uid, gid, links, inode, size, *times, path)
    return letter(found) + b" %o %d %d %d %d %d %d.%09d %d.%09d %b" % numbers
