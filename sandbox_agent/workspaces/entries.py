"""Small facts about one entry of a folder that copying, comparing and applying must see alike."""

from __future__ import annotations

import hashlib
import os
import stat

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.content import digest
from sandbox_agent.workspaces.manifest import Entry, stamp
from sandbox_agent.workspaces.nofollow import Place

FIFO, SOCKET = "p", "s"


def file_kind(mode: int) -> Kind:
    """What an `st_mode` stands for."""
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def special(info: os.stat_result) -> str:
    """What a special file is, as the `target` of its entry: the letter that `find` has, and a device's numbers."""
    if stat.S_ISFIFO(info.st_mode) or stat.S_ISSOCK(info.st_mode):
        return FIFO if stat.S_ISFIFO(info.st_mode) else SOCKET
    letter = "c" if stat.S_ISCHR(info.st_mode) else "b"
    return f"{letter} {os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"


def special_name(target: str | None) -> str:
    """The everyday name of what `special` tells."""
    if target == FIFO:
        return "a FIFO"
    return "a socket" if target == SOCKET else "a device"


def link_digest(target: str) -> str:
    """SHA-256 of a link's text."""
    return hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()


def examine(place: Place) -> Entry | None:
    """What is at a place now, with its content hashed; None if nothing is.

    Raises:
        OSError: it cannot be read, or was swapped for something else while looking.
    """
    info = place.stat()
    if info is None:
        return None
    kind = file_kind(info.st_mode)
    if kind is Kind.LINK:
        text = place.readlink()
        return Entry(kind, link_digest(text), size_bytes=len(text), target=text)
    if kind is Kind.OTHER:
        return Entry(kind, mode=info.st_mode & 0o777, target=special(info))
    if kind is Kind.DIRECTORY:
        return Entry(kind, mode=info.st_mode & 0o777)
    fd = place.open_file()
    try:
        info = os.fstat(fd)
        content = digest(fd)
    finally:
        os.close(fd)
    return Entry(kind, content.sha256, info.st_mode & 0o777, content.size_bytes, stamp=stamp(info))
