"""The other names of a file, where an overlay takes them away: it copies a file of its lower layer up under the one
name that is written to, and the others keep the old content.

Runs in the container (see the package).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

MAX_ENTRIES = 50_000
MAX_S = 0.5
"""Looking goes on no longer than that: whoever waits, waits for an edit."""


def rejoin(path: bytes, before: os.stat_result) -> None:
    """Give the file at `path` the names again that the file had which `before` tells of; what cannot be, is left."""
    try:
        lost = before.st_nlink - os.lstat(path).st_nlink
        names = _names([_top(path), os.path.dirname(path)], before) if lost > 0 else iter(())
        for _, name in zip(range(lost), names, strict=False):
            _name_again(path, name)
    except OSError:
        return


def _top(path: bytes) -> bytes:
    """The highest folder above `path` in the same file system."""
    folder = os.path.dirname(path)
    device = os.lstat(folder).st_dev
    while folder != b"/" and os.lstat(os.path.dirname(folder)).st_dev == device:
        folder = os.path.dirname(folder)
    return folder


def _names(waiting: list[bytes], wanted: os.stat_result) -> Iterator[bytes]:
    """Below these folders, the last one first."""
    until = time.monotonic() + MAX_S
    seen = 0
    while waiting and time.monotonic() < until:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # closed to the tools, or gone
        seen += len(entries)
        if seen > MAX_ENTRIES:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False) and _is(entry.path, wanted):
                yield entry.path


def _is(path: bytes, wanted: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def _name_again(path: bytes, name: bytes) -> None:
    draft = os.path.join(os.path.dirname(name), b".sandbox-agent-" + os.urandom(8).hex().encode())
    os.link(path, draft, follow_symlinks=False)
    try:
        os.rename(draft, name)
    except OSError:
        os.unlink(draft)
