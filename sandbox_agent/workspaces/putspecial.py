"""FIFOs and device nodes for the person's folder, each only because its own path was named.

A FIFO is made anew. A device is made by root alone, and only if the folder held the very same one when the session
began: inside none can be made, so whoever says otherwise lies.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import FIFO, SOCKET
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.nofollow import Place

FIFO_MODE = 0o644

NAMED = "goes only when its own path is named"
NO_SOCKET = "a socket is never copied out: it means nothing without the program that made it"
NOT_ROOT = "a device: only root can make one; apply it as root, by its own path"
UNKNOWN_DEVICE = "is a device that the folder did not hold when the session began: it is not made"

_DEVICE = re.compile(r"([cb]) (\d{1,7}):(\d{1,7})\Z")


class UnmakeableError(Exception):
    """A special file that is not made; the text says why."""


def withheld(after: Entry | None, *, named: bool) -> str | None:
    """Why a link or special file does not go to the folder, None if it does.

    Args:
        after: what the path is to become.
        named: whether the person named its own path.
    """
    if after is None or after.kind in (Kind.FILE, Kind.DIRECTORY):
        return None
    if after.kind is Kind.LINK:
        return None if named else f"a link to {after.target}: {NAMED}"
    if after.target == SOCKET:
        return NO_SOCKET
    if after.target == FIFO:
        return None if named else f"a FIFO: {NAMED}"
    if os.geteuid() != 0:
        return NOT_ROOT
    return None if named else f"a device: {NAMED}"


def devices_of(manifest: Manifest) -> dict[str, Entry]:
    """The devices that a folder held, by what they are."""
    return {
        entry.target: entry
        for entry in manifest.entries.values()
        if entry.kind is Kind.OTHER and entry.target is not None and _DEVICE.match(entry.target)
    }


def make_special(target: str, place: Place, devices: Mapping[str, Entry]) -> None:
    """Make a FIFO or device at a place where nothing is, of the owner that the place's folder has.

    Raises:
        UnmakeableError: it is none of the two, or no device of `devices`.
        OSError: the system refused; something of it may be there.
    """
    folder = os.fstat(place.folder_fd)
    owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else (-1, -1)
    if target == FIFO:
        place.mkfifo()
        place.dress(*owner, FIFO_MODE)
        return
    known, device = devices.get(target), _DEVICE.match(target)
    if known is None or device is None:
        raise UnmakeableError(UNKNOWN_DEVICE)
    kind = stat.S_IFCHR if device[1] == "c" else stat.S_IFBLK
    place.mknod(kind | 0o600, os.makedev(int(device[2]), int(device[3])))
    place.dress(*owner, 0o600 if known.mode & 0o077 == 0 else 0o644)
