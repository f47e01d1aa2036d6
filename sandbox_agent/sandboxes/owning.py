"""Gives entries of /workspace to their owners: the program that `owners` runs as root in a container of its own.

The folder may hold anything, so every step goes by descriptor and never through a link. Imports nothing of ours.
"""

from __future__ import annotations

import os
import sys

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def give(root: int, uid: int, gid: int, path: bytes) -> None:
    """Give one entry away. Raises OSError."""
    *above, name = path.split(b"/")
    fd = os.dup(root)
    try:
        for part in above:
            deeper = os.open(part, FOLDER, dir_fd=fd)
            os.close(fd)
            fd = deeper
        os.chown(name or b".", uid, gid, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)


def main() -> None:
    """The arguments are the folder, and rows "uid gid path" with a NUL between them, in hex."""
    root, failed = os.open(sys.argv[1], FOLDER), 0
    for row in bytes.fromhex(sys.argv[2]).split(b"\0"):
        uid, gid, path = row.split(b" ", 2)
        try:
            give(root, int(uid), int(gid), path)
        except OSError:
            failed += 1
    sys.exit(min(failed, 100))


if __name__ == "__main__":
    main()
