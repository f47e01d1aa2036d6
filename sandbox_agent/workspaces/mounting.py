"""The kernel's mount calls that overlay workspaces need on the host: only for root, and nothing is mounted by a name
that somebody else could swap. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox_agent.workspaces.base import ROOT_FOLDER_ID

# The same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442

_CLONE = 0x1
_CLOEXEC = os.O_CLOEXEC
_AT_EMPTY_PATH = 0x1000
_FROM_FD = 0x4  # MOVE_MOUNT_F_EMPTY_PATH
_TO_FD = 0x40  # MOVE_MOUNT_T_EMPTY_PATH
_SET_STRING, _CREATE = 1, 6
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_NOEXEC, _ATTR_IDMAP = 0x1, 0x2, 0x4, 0x8, 0x0010_0000
_DETACH, _NOFOLLOW = 0x2, 0x8
_PRIVATE = 1 << 18  # MS_PRIVATE

_LAST_ID = 2**32 - 2
_SWAPPED = (
    f"0 {ROOT_FOLDER_ID} 1\n1 1 {ROOT_FOLDER_ID - 1}\n{ROOT_FOLDER_ID} 0 1\n"
    f"{ROOT_FOLDER_ID + 1} {ROOT_FOLDER_ID + 1} {_LAST_ID - ROOT_FOLDER_ID}\n"
)
"""Root's files look like the tools' own and the other way round; every other owner stays what it is."""

_IN_USER_NAMESPACE = (
    "import ctypes, sys\n"
    "print(ctypes.CDLL(None).unshare(0x10000000), flush=True)\n"  # CLONE_NEWUSER
    "sys.stdin.read()\n"
)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace_fd", ctypes.c_uint64),
    )


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | _MountAttr | None) -> int:
    """A system call; Python integers go as C long, which fits every argument there is."""
    given = [
        ctypes.c_long(argument)
        if isinstance(argument, int)
        else ctypes.byref(argument)
        if isinstance(argument, ctypes.Structure)
        else argument
        for argument in arguments
    ]
    result = int(_libc().syscall(ctypes.c_long(number), *given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@contextlib.contextmanager
def merged_view(layers: Sequence[int]) -> Iterator[int]:
    """A read-only overlay of opened folders, topmost first, at least two: yields a descriptor of its top.

    It is attached nowhere: nobody else can find it, and it ends with its last descriptor, whatever becomes of us.

    Raises:
        OSError: EPERM for an ordinary user, ENOSYS before Linux 5.2, ENODEV without overlay.
    """
    context = _call(_FSOPEN, b"overlay\0", 1)
    try:
        # By descriptor: no path can be swapped, and no character of one can be taken for a separator.
        lower = ":".join(f"/proc/self/fd/{fd}" for fd in layers)
        for key, value in (("lowerdir", lower), ("redirect_dir", "follow")):
            _call(_FSCONFIG, context, _SET_STRING, key.encode() + b"\0", value.encode() + b"\0", 0)
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        mount = _call(_FSMOUNT, context, 1, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV | _ATTR_NOEXEC)
    finally:
        os.close(context)
    try:
        yield mount
    finally:
        os.close(mount)


def attach_idmapped(source: Path, target: Path) -> None:
    """Mount a folder of root's at `target`, an empty folder of ours, read-only and with root's files as the tools'.

    Sub-mounts are not taken along.

    Raises:
        OSError: the kernel (before 5.12) or the file system cannot, or we may not.
    """
    namespace = _swapping_namespace()
    try:
        tree = _call(_OPEN_TREE, -100, os.fsencode(source), _CLONE | _CLOEXEC)
        try:
            flags = _ATTR_IDMAP | _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV
            attributes = _MountAttr(flags, 0, _PRIVATE, namespace)
            _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, ctypes.sizeof(attributes))
            place = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _call(_MOVE_MOUNT, tree, b"", place, b"", _FROM_FD | _TO_FD)
            finally:
                os.close(place)
        finally:
            os.close(tree)
    finally:
        os.close(namespace)


def detach(target: Path) -> None:
    """Unmount what is mounted there, if anything is. What still uses it keeps it until it ends.

    Raises:
        OSError: something is mounted there and we may not.
    """
    if not is_mounted(target):
        return
    if _libc().umount2(os.fsencode(target), _DETACH | _NOFOLLOW) != 0:
        code = ctypes.get_errno()
        if code != errno.EINVAL:  # somebody was quicker
            raise OSError(code, os.strerror(code), str(target))


def is_mounted(target: Path) -> bool:
    """Whether something is mounted at a path. `os.path.ismount` does not see mounts within one file system."""
    return target in _mount_points()


def mounts_below(folder: Path) -> list[Path]:
    """Where something is mounted in a folder; an overlay shows the empty folder under it."""
    return [place for place in _mount_points() if place != folder and place.is_relative_to(folder)]


def _mount_points() -> list[Path]:
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split(b" ", 5)[4] for line in file]
    # The kernel writes blank, tab, line end and backslash as three octal digits.
    return [Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", _character, field))) for field in fields]


def _character(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])


def _swapping_namespace() -> int:
    """A user namespace that stands for the mapping; it lives as long as its descriptor.

    A child is needed: a process with threads, as ours, cannot enter another user namespace itself.
    """
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _IN_USER_NAMESPACE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        if child.stdout.readline() != b"0\n":
            raise OSError(errno.EPERM, "no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child.pid}/{name}").write_text(_SWAPPED)
        return os.open(f"/proc/{child.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
