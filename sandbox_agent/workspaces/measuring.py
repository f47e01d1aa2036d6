"""What a session's writes take on this machine, by a walk that follows no link and takes no offence."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sandbox_agent.workspaces.tree import Tree

MAX_ENTRIES = 2**31
_SECTOR_BYTES = 512


def measured(folders: Iterable[Path]) -> tuple[int, int]:
    """Bytes on disk, and entries; a file with several names counts once. What is closed to us is not counted.

    Raises:
        OSError: a folder is not there.
    """
    size_bytes = entries = 0
    seen: set[tuple[int, int]] = set()
    for folder in folders:
        with Tree(folder) as tree:
            for found in tree.walk(failed=lambda path, error: None, max_entries=MAX_ENTRIES):
                entries += 1
                if found.info.st_nlink > 1:
                    key = (found.info.st_dev, found.info.st_ino)
                    if key in seen:
                        continue
                    seen.add(key)
                size_bytes += found.info.st_blocks * _SECTOR_BYTES
    return size_bytes, entries
