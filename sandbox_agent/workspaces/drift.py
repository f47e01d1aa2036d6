"""Tells what the session changed from what the person changed meanwhile: the folder under an overlay is alive.

A stamp (size and times, with the inode where it is the folder's own) is compared first; content is read only for files
whose stamp says nothing. A session cannot forge one: the kernel sets the time of change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Drift, Kind
from sandbox_agent.workspaces.entries import examine, file_kind, special
from sandbox_agent.workspaces.manifest import RACY_NS, Entry, Manifest, Stamp, stamp
from sandbox_agent.workspaces.tree import Tree

GONE = "the original is gone"
"""Stands for the digest of a file that was changed before anybody needed its content: equal to no digest."""


@dataclass(slots=True)
class Start:
    """The folder as it was at the start.

    `mask_stamps` are of the files that hide secrets: moved with their folder, they are still no file of the session's.
    `drifted` are the paths that others changed since, as far as looked at.
    """

    manifest: Manifest
    mask_stamps: frozenset[Stamp] = frozenset()
    drifted: set[str] = field(default_factory=set)
    _masks: set[str] = field(default_factory=set)

    def untouched_mask(self, path: str) -> bool:
        """Whether a path is one of our empty files, as it was: no change."""
        return path in self._masks


def drifted(manifest: Manifest, host: Tree) -> tuple[Drift, ...]:
    """What came, went or changed in the folder since the manifest was taken; folders only when they came or went.

    Raises:
        WorkspaceError: the folder cannot be listed.
    """
    return _found(manifest, host, lambda path, info: _moved(manifest, path, info, host))


def drifted_since(manifest: Manifest, host: Tree, began_ns: int) -> tuple[Drift, ...]:
    """The same for a manifest whose stamps are of another tree: files that changed after a time are read.

    Raises:
        WorkspaceError: the folder cannot be listed.
    """
    return _found(manifest, host, lambda path, info: _became(manifest, path, info, host, began_ns))


def _found(manifest: Manifest, host: Tree, kind_of: Callable[[str, os.stat_result], str | None]) -> tuple[Drift, ...]:
    now = _infos(host)
    gone = (path for path, entry in manifest.entries.items() if entry.hidden is None and path not in now)
    found = [Drift(path, "deleted") for path in gone]
    for path, info in now.items():
        kind = kind_of(path, info)
        if kind is not None:
            found.append(Drift(path, kind, hashlib.sha256(repr(stamp(info)).encode()).hexdigest()[:16]))
    return tuple(sorted(found))


def _became(base: Manifest, path: str, info: os.stat_result, host: Tree, began_ns: int) -> str | None:
    known = base.entries.get(path)
    if known is None or known.hidden is not None or known.kind is not _kind(info) or known.kind is Kind.OTHER:
        return _other_sort(base, path, info)
    if known.kind is Kind.DIRECTORY or info.st_ctime_ns < began_ns - RACY_NS:
        return None
    entry = _examined(host, path, info)
    if (entry.sha256, entry.target) != (known.sha256, known.target):
        return "link" if known.kind is Kind.LINK else "modified"
    return "mode" if entry.executable != known.executable else None


def _moved(base: Manifest, path: str, info: os.stat_result, host: Tree) -> str | None:
    """How an entry of the folder differs from what the manifest, which has its stamps, says; None if it does not."""
    known = base.entries.get(path)
    if known is None or known.hidden is not None or known.kind is not _kind(info) or known.kind is Kind.OTHER:
        return _other_sort(base, path, info)
    if known.kind is Kind.LINK and info.st_ctime_ns >= base.finished_ns - RACY_NS:
        return "link" if _examined(host, path, info).target != known.target else None
    now = stamp(info)
    if known.kind is not Kind.FILE or known.stamp == now:
        return None
    chmod = known.stamp is not None and known.stamp[:3] == now[:3] and known.mode != info.st_mode & 0o777
    return "mode" if chmod else "modified"


def _other_sort(base: Manifest, path: str, info: os.stat_result) -> str | None:
    known = base.entries.get(path)
    if known is None:
        return None if base.hidden_by(path) else "added"
    if known.hidden is not None:
        return None
    same = known.kind is _kind(info) and (known.kind is not Kind.OTHER or known.target == special(info))
    return None if same else "type"


def as_started(start: Start, host: Tree, merged: Tree) -> Manifest:
    """The manifest that a review of `merged` needs: digests where they matter, the person's own changes taken over.

    Raises:
        WorkspaceError: one of the two cannot be listed.
    """
    base, now, seen = start.manifest, _infos(host), _infos(merged)
    before = Manifest(dict(base.entries), base.finished_ns)
    for path, info in seen.items():
        known = base.entries.get(path)
        if known is not None and known.hidden is not None:
            if info.st_size == 0 and file_kind(info.st_mode) is Kind.FILE:
                start._masks.add(path)
            continue
        if known is None and stamp(info) in start.mask_stamps:
            start._masks.add(path)
            continue
        theirs = now.get(path)
        if theirs is not None and _moved(base, path, theirs, host) is not None:
            start.drifted.add(path)
            if _same(info, theirs):
                before.entries[path] = _examined(merged, path, info)
                continue
        if known is not None and known.kind is Kind.FILE and not base.unchanged(path, info):
            before.entries[path] = original(host, path, known)
    for path, known in base.entries.items():
        if path in seen or known.hidden is not None:
            continue
        if path not in now:
            start.drifted.add(path)
            del before.entries[path]
        elif known.kind is Kind.FILE:
            before.entries[path] = original(host, path, known)
    return before


def _same(seen: os.stat_result, theirs: os.stat_result) -> bool:
    """Whether what the session sees is the folder's own. Layers on two file systems have inodes of their own."""
    if _kind(seen) is not _kind(theirs):
        return False
    if _kind(seen) is Kind.DIRECTORY:
        return True
    return stamp(seen)[1:] == stamp(theirs)[1:]


def _kind(info: os.stat_result) -> Kind:
    return file_kind(info.st_mode)


def original(host: Tree, path: str, known: Entry) -> Entry:
    """The entry with its digest, from the person's folder, as long as that still has what it had."""
    if known.sha256 is not None:
        return known
    try:
        with host.at(path) as place:
            entry = examine(place)
    except OSError:
        entry = None
    if entry is None or entry.stamp != known.stamp:
        return replace(known, sha256=GONE)
    return entry


def _examined(tree: Tree, path: str, info: os.stat_result) -> Entry:
    try:
        with tree.at(path) as place:
            entry = examine(place)
    except OSError:
        entry = None
    return entry if entry is not None else Entry(_kind(info), mode=info.st_mode & 0o777)


def _infos(tree: Tree) -> dict[str, os.stat_result]:
    def failed(path: str, error: OSError) -> None:
        if not path:
            raise WorkspaceError(f"{tree.root}: cannot be listed: {error.strerror}") from error

    return {found.path: found.info for found in tree.walk(failed=failed)}
