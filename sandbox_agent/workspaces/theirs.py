"""Which changes of a tree are the person's own: the folder under an overlay is alive, and what changes there is seen.

A change is theirs when the person's folder has the very same now. Only the kernel sets a time of change, so a session
cannot pass for it; where that time proves nothing yet, contents are compared.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.content import digest
from sandbox_agent.workspaces.nofollow import Place
from sandbox_agent.workspaces.snapshot import Delta, Node
from sandbox_agent.workspaces.tree import Tree


def theirs(host: Path, deltas: Iterable[Delta]) -> frozenset[str]:
    """The paths of those changes that came from the folder `host` itself; none where it cannot be looked at."""
    try:
        with Tree(host) as tree:
            return frozenset(delta.path for delta in deltas if _is_theirs(tree, delta))
    except OSError:
        return frozenset()


def _is_theirs(tree: Tree, delta: Delta) -> bool:
    if not delta.path:
        return False
    try:
        with tree.at(delta.path) as place:
            info = place.stat()
            return info is not None and _same(place, info, delta) if delta.after is not None else _gone(info, delta)
    except OSError:
        return delta.after is None and _gone(None, delta)  # the folder that it was in is gone as well


def _gone(info: os.stat_result | None, delta: Delta) -> bool:
    """What the session had made, or changed, was not in the folder, and cannot have gone from there."""
    return info is None and delta.before is not None and delta.before.sha256 is None


def _same(place: Place, info: os.stat_result, delta: Delta) -> bool:
    node = delta.after
    assert node is not None
    match node.kind:
        case Kind.DIRECTORY:
            return stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == node.mode
        case Kind.LINK:
            return stat.S_ISLNK(info.st_mode) and place.readlink() == node.target
        case Kind.FILE:
            return stat.S_ISREG(info.st_mode) and _same_file(place, info, node)
        case _:
            return False


def _same_file(place: Place, info: os.stat_result, node: Node) -> bool:
    if (info.st_size, info.st_mtime_ns, stat.S_IMODE(info.st_mode)) != (node.size_bytes, node.mtime_ns, node.mode):
        return False
    if node.ctime_ns:
        return info.st_ctime_ns == node.ctime_ns
    fd = place.open_file()
    try:
        return node.sha256 in (None, digest(fd).sha256)  # None is content that nobody has changed
    finally:
        os.close(fd)
