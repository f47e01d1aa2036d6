"""Removes a tree that someone hostile may have built: never through a link, at any depth, whatever its modes are."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from sandbox_agent.workspaces.nofollow import Place, encode, grant_owner, open_folder_at
from sandbox_agent.workspaces.tree import Tree

MOVED_PREFIX = ".removing-"


def remove_tree(parent: Path, name: str) -> None:
    """Remove `name` in `parent`, and what an interrupted removal left there. Missing is fine.

    Each folder is first moved up beside its top and emptied there: that takes one descriptor and no recursion for a
    tree nested without end. `parent` must be a folder of our own.

    Raises:
        OSError: the system refused, for example a mount inside.
    """
    try:
        tree = Tree(parent)
    except FileNotFoundError:
        return
    with tree:
        folder_fd = tree.open_folder("")
        try:
            left = [n for n in os.listdir(folder_fd) if n.startswith(MOVED_PREFIX)]
            pending = [encode(name), *(encode(n) for n in left)]
            while pending:
                pending += _remove(Place(folder_fd, pending.pop()))
        finally:
            os.close(folder_fd)


def _remove(place: Place) -> list[bytes]:
    """Remove one entry; of a folder, return the names its sub-folders were moved to."""
    info = place.stat()
    if info is None:
        return []
    if not stat.S_ISDIR(info.st_mode):
        place.unlink()
        return []
    grant_owner(place.folder_fd, place.name)
    moved: list[bytes] = []
    fd = open_folder_at(place.folder_fd, place.name)
    try:
        for entry in os.listdir(fd):
            inner = Place(fd, os.fsencode(entry))
            status = inner.stat()
            if status is not None and stat.S_ISDIR(status.st_mode):
                grant_owner(fd, inner.name)  # moving a folder rewrites its "..", which takes the right to write it
                target = f"{MOVED_PREFIX}{secrets.token_hex(8)}".encode()
                inner.rename_to(Place(place.folder_fd, target))
                moved.append(target)
            else:
                inner.unlink()
    finally:
        os.close(fd)
    place.rmdir()
    return moved
