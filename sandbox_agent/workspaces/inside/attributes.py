"""Extended attributes of an entry that its owner may set: those named user.*, and access control lists.

They travel as text: names and values in hex, sorted; "" is none.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

ACL_ACCESS, ACL_DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
PREFIX = "user."
SET_ID, SPECIAL = 0o6000, 0o7000
_ACL_VERSION, _NOBODY = 2, 0xFFFFFFFF
_OWNER, _GROUP, _OTHERS = 0x01, 0x04, 0x20
NONE = (errno.ENODATA, errno.ENOTSUP)


def set_mode(place: str, mode: int) -> None:
    """A chmod that also keeps a set-id bit which is there.

    A chmod that names such a bit is refused in here (see the seccomp profile), though a folder of a shared folder has
    it from the one it was made in. Then the rights are set as an access control list of just the three that a mode has,
    of which the kernel makes a mode. A bit that is not there is left out; the host tells of it.
    `place` leads to a file or folder whatever it is called. Raises OSError.
    """
    now = stat.S_IMODE(os.stat(place).st_mode)
    if now == mode:
        return
    if not mode & SET_ID:
        os.chmod(place, mode)
        return
    if (now ^ mode) & SPECIAL:
        try:
            os.chmod(place, mode)
        except PermissionError:
            os.chmod(place, mode & ~SET_ID)
        return
    entries = ((_OWNER, mode >> 6), (_GROUP, mode >> 3), (_OTHERS, mode))
    packed = [struct.pack("<HHI", who, rights & 0o7, _NOBODY) for who, rights in entries]
    os.setxattr(place, ACL_ACCESS, struct.pack("<I", _ACL_VERSION) + b"".join(packed))


def names_of(place: str, *, follow: bool) -> list[str]:
    """The attributes of a file or folder. Raises OSError."""
    try:
        found = os.listxattr(place, follow_symlinks=follow)
    except OSError as exc:
        if exc.errno in NONE:
            return []
        raise
    return sorted(name for name in found if name.startswith(PREFIX) or name in (ACL_ACCESS, ACL_DEFAULT))


def text_of(place: str, *, follow: bool = False) -> bytes:
    """All attributes of a file or folder. Raises OSError: a value may not be read."""
    pairs = []
    for name in names_of(place, follow=follow):
        try:
            value = os.getxattr(place, name, follow_symlinks=follow)
        except OSError as exc:
            if exc.errno in NONE:
                continue  # removed meanwhile
            raise
        pairs.append(os.fsencode(name).hex() + "=" + value.hex())
    return ",".join(pairs).encode()


def parsed(text: bytes) -> dict[str, bytes]:
    """The attributes that a text tells."""
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return {os.fsdecode(bytes.fromhex(name.decode())): bytes.fromhex(value.decode()) for name, _, value in pairs}


def adjust(place: str, wanted: dict[str, bytes]) -> None:
    """Give a file or folder exactly these attributes but for its list of rights, and take the others away.

    `place` leads to it whatever it is called. Raises OSError.
    """
    there = names_of(place, follow=True)
    for name in there:
        if name not in wanted:
            os.removexattr(place, name)
    for name, value in wanted.items():
        if name != ACL_ACCESS and (name not in there or os.getxattr(place, name) != value):
            os.setxattr(place, name, value)
