"""Random changes to /workspace, as a program for the container: whatever a shell can do to a tree, and a writer that
never stops. Runs inside, so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys

NAMES = [
    b"a",
    b"b",
    b"c.txt",
    b"new\nline",
    b"\xff\xfe",
    "ünïcødé".encode(),
    b" ",
    b"-rf",
    b"*",
    b".hidden",
    b"x" * 200,
]


NOWHERE = b"/nonexistent/of-sandbox-agent-tests"
"""Where links lead that leave the tree. Nothing real: some changes follow links, and they are made on the host, too."""


def everything(root: bytes) -> list[bytes]:
    """All paths below, past folders that are closed."""
    found = []
    for folder, folders, files in os.walk(root):
        found += [os.path.join(folder, name) for name in folders + files]
    return found


def somewhere(dice: random.Random, root: bytes) -> bytes:
    folders = [root, *(path for path in everything(root) if os.path.isdir(path) and not os.path.islink(path))]
    return os.path.join(dice.choice(folders), dice.choice(NAMES))


def clear(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def write(dice: random.Random, path: bytes) -> None:
    size = dice.choice([0, 1, 100, 5000, 70_000, 1_000_000])
    with open(path, "wb") as file:
        file.write(dice.randbytes(size))
        if dice.random() < 0.1:
            file.seek(dice.choice([10_000, 5_000_000, 50_000_000]))
            file.write(b"end")


def attribute(dice: random.Random, path: bytes) -> None:
    """Set or take away an extended attribute; links have none."""
    if dice.random() < 0.7:
        os.setxattr(
            path, dice.choice(["user.a", "user.b"]), dice.randbytes(dice.choice([0, 3, 300])), follow_symlinks=False
        )
    else:
        os.removexattr(path, "user.a", follow_symlinks=False)


def make_anew(dice: random.Random, path: bytes) -> None:
    """A folder of the same name with something else in it: in an overlay it hides what was there before."""
    clear(path)
    os.mkdir(path)
    with open(os.path.join(path, dice.choice(NAMES)), "wb") as file:
        file.write(b"other")


def swap(one: bytes, other: bytes) -> None:
    """Two entries change names, whatever they are; one may not lie in the other."""
    aside = one + b"-aside"
    os.rename(one, aside)
    try:
        os.rename(other, one)
    except OSError:
        os.rename(aside, one)
        raise
    os.rename(aside, other)


def one_change(dice: random.Random, root: bytes) -> None:
    path = somewhere(dice, root)
    others = everything(root) or [path]
    other = dice.choice(others)
    what = dice.randrange(18)
    if what <= 2:
        clear(path)
        write(dice, path)
    elif what == 3:
        with open(other, "r+b") as file:
            file.seek(dice.randrange(100))
            file.write(dice.randbytes(50))
    elif what == 4:
        clear(path)
        os.makedirs(os.path.join(path, dice.choice(NAMES)), exist_ok=True)
    elif what == 5:
        clear(path)
        os.symlink(dice.choice([other, NOWHERE, b"nowhere\n"]), path)
    elif what == 6:
        clear(path)
        os.link(other, path, follow_symlinks=False)
    elif what == 7:
        os.rename(other, path)
    elif what == 8:
        clear(other)
    elif what == 9:
        os.chmod(other, dice.choice([0, 0o400, 0o644, 0o755, 0o1777, 0o2755, 0o4711]))
    elif what == 10:
        clear(path)
        os.mkfifo(path)
    elif what == 11:
        os.truncate(other, dice.choice([0, 10, 2_000_000]))
    elif what == 12:
        os.utime(other, ns=(0, dice.randrange(-(10**18), 2 * 10**18)), follow_symlinks=False)
    elif what == 13:
        os.chmod(root, dice.choice([0o700, 0o755, 0o1777]))
    else:
        odd_change(dice, path, other, dice.choice(others))


def odd_change(dice: random.Random, path: bytes, other: bytes, third: bytes) -> None:
    what = dice.randrange(4)
    if what == 0:
        attribute(dice, other)
    elif what == 1:
        make_anew(dice, other if os.path.isdir(other) and not os.path.islink(other) else path)
    elif what == 2:
        swap(other, third)
    else:
        clear(path)
        with open(path, "wb") as file:
            file.write(dice.randbytes(4096) * (2048 if dice.random() < 0.2 else 20))


def change(seed: int, count: int) -> None:
    """So many changes; those that the system refuses are none."""
    dice = random.Random(seed)
    for _ in range(count):
        with contextlib.suppress(OSError, shutil.Error):
            one_change(dice, b"/workspace")


def write_for_ever(seed: int) -> None:
    """Change and change until killed; says when it has begun."""
    dice = random.Random(seed)
    print("writing", flush=True)
    while True:
        with contextlib.suppress(OSError, shutil.Error):
            one_change(dice, b"/workspace")


if __name__ == "__main__":
    if sys.argv[1] == "for-ever":
        write_for_ever(int(sys.argv[2]))
    else:
        change(int(sys.argv[1]), int(sys.argv[2]))
