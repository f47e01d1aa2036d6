"""What the whole tree of a workspace was at one moment, as a plain value: every path, .git and ignored files too.

Paths are relative, "/"-joined `str` with surrogate escapes ("" is the workspace folder itself). A file's content is
named by its SHA-256; `None` stands for the content the path had in the *base*, the tree as it was before the first
tool ran. Content that nobody changed is never read. The bytes are in `store`, the way to disk in `steps`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from sandbox_agent.workspaces.base import Kind

OWN = -1
"""Stands for the uid, and the gid, that the tools run as."""

ROOT = ""
"""The path of the workspace folder itself: only its mode and time are of interest."""

LOST_TOO_LARGE = "too large to keep"
LOST_UNREADABLE = "could not be read"
TORN = "changed while it was read"


class Node(NamedTuple):
    """One path. Links are never followed.

    `mode` has all twelve bits, set-id and sticky as found. `sha256` is of a file's content, as `content.digest` writes
    it ("blocks:" before it from 1 GiB on); None for the base's content, and for everything that is no file. `target`
    is a link's text; of `Kind.OTHER` what it is, as `entries.special` tells it ("p" is a FIFO, "c 1:3" a device).
    `group` names the first path of a file's hard links in this tree, None when it is the only one. `flag` says what is
    not as it should be: the content was not kept (`LOST_...`; `sha256` then names content the store does not have), or
    was read while it changed (`TORN`).

    The rest is how a later walk knows that nothing changed: `inode`, `links`, `ctime_ns`, for files only; and
    `mtime_ns`, which is brought back but counts for nothing when trees are compared. `uid` and `gid` are `OWN` where
    they are the tools'. `attributes` are extended ones of files and folders, see `inside.attributes`.
    """

    kind: Kind
    mode: int
    size_bytes: int = 0
    sha256: str | None = None
    target: str | None = None
    group: str | None = None
    flag: str | None = None
    mtime_ns: int = 0
    uid: int = OWN
    gid: int = OWN
    inode: int = 0
    links: int = 1
    ctime_ns: int = 0
    attributes: str = ""

    @property
    def lost(self) -> bool:
        """Whether the store does not have the content."""
        return self.flag in (LOST_TOO_LARGE, LOST_UNREADABLE)

    def line(self, path: str) -> bytes:
        """What the tree's hash is made of: all that is compared, and nothing that differs from machine to machine."""
        content = "base" if self.sha256 is None and self.kind is Kind.FILE else self.sha256 or ""
        text = f"{path}\0{self.kind.value} {self.mode:o} {content}\0{self.target or ''}\0{self.group or ''}\n"
        if self.attributes or self.uid != OWN or self.gid != OWN:  # rare, and owners differ from machine to machine
            text = f"{text[:-1]}\0{self.uid}:{self.gid}\0{self.attributes}\n"
        return text.encode("utf-8", "surrogateescape")


class Delta(NamedTuple):
    """One path that differs between two snapshots.

    `kind` is added, deleted, modified (content), mode, type (another sort of entry), link (another target), owner,
    attributes (extended ones) or group (the same content, under other hard links); the first that fits. `before` and
    `after` are None where there is nothing.
    """

    path: str
    kind: str
    before: Node | None
    after: Node | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All nodes by path, and the hash that names the tree. Made by `snapshot_of` or `Snapshot.changed`."""

    nodes: Mapping[str, Node]
    tree_sha256: str
    lines: Mapping[str, bytes] = field(repr=False, compare=False)

    def changed(self, changed: Mapping[str, Node], removed: Iterable[str] = ()) -> Snapshot:
        """This tree with some nodes put in or replaced and some paths gone."""
        return change(self, changed, removed).snapshot


class Changed(NamedTuple):
    """A new snapshot, and what differs from the one before, by path."""

    snapshot: Snapshot
    deltas: list[Delta]


def snapshot_of(nodes: Mapping[str, Node]) -> Snapshot:
    """The snapshot that holds exactly these nodes; hard links are found by their inodes."""
    grouped = dict(nodes)
    _regroup(grouped)
    lines = {path: node.line(path) for path, node in grouped.items()}
    # In the order of the hash, so that sorting them again after a few changes takes next to no time.
    ordered = dict(sorted(lines.items(), key=itemgetter(1)))
    return Snapshot(grouped, _hash(ordered), ordered)


def change(before: Snapshot, changed: Mapping[str, Node], removed: Iterable[str] = ()) -> Changed:
    """Put some nodes into a tree and take some paths out of it. Costs what changed, but for copying and hashing."""
    nodes, lines = dict(before.nodes), dict(before.lines)
    dirty = {*changed, *removed}
    linked = any(node.links > 1 or node.group is not None for node in changed.values())
    for path in dirty:
        old = nodes.pop(path, None) if path not in changed else nodes.get(path)
        linked = linked or (old is not None and (old.links > 1 or old.group is not None))
        if path not in changed:
            lines.pop(path, None)
    nodes.update(changed)
    if linked:
        dirty |= _regroup(nodes)
    for path in dirty:
        if path in nodes:
            lines[path] = nodes[path].line(path)
    after = Snapshot(nodes, _hash(lines), lines)
    return Changed(after, _deltas(before, after, dirty))


def diff(before: Snapshot, after: Snapshot) -> list[Delta]:
    """Every path that differs in more than its times, by path."""
    return _deltas(before, after, {path for path, _ in before.lines.items() ^ after.lines.items()})


def _deltas(before: Snapshot, after: Snapshot, paths: Iterable[str]) -> list[Delta]:
    found = []
    for path in sorted(paths):
        if before.lines.get(path) != after.lines.get(path):
            was, now = before.nodes.get(path), after.nodes.get(path)
            found.append(Delta(path, _kind(was, now), was, now))
    return found


def _kind(was: Node | None, now: Node | None) -> str:
    if was is None or now is None:
        return "added" if was is None else "deleted"
    if was.kind is not now.kind or (was.kind is Kind.OTHER and was.target != now.target):
        return "type"
    if was.target != now.target:
        return "link"
    if was.sha256 != now.sha256:
        return "modified"
    if was.mode != now.mode:
        return "mode"
    if (was.uid, was.gid) != (now.uid, now.gid):
        return "owner"
    return "attributes" if was.attributes != now.attributes else "group"


def _regroup(nodes: dict[str, Node]) -> set[str]:
    """Name every group of hard links by its first path; returns the paths whose group has another name now.

    Inodes differ from tree to tree, so they cannot be the name.
    """
    groups: dict[int, list[str]] = {}
    for path, node in nodes.items():
        if node.links > 1 or node.group is not None:
            groups.setdefault(node.inode if node.links > 1 else -len(groups) - 1, []).append(path)
    renamed = set()
    for paths in groups.values():
        first = min(paths) if len(paths) > 1 else None
        for path in paths:
            if nodes[path].group != first:
                nodes[path] = nodes[path]._replace(group=first)
                renamed.add(path)
    return renamed


def _hash(lines: Mapping[str, bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(lines.values()))).hexdigest()


def pack(nodes: Mapping[str, Node], removed: Iterable[str] = ()) -> bytes:
    """Nodes and removed paths as bytes; see `unpack`."""
    rows = [[path, *node] for path, node in nodes.items()]
    return zlib.compress(json.dumps([rows, list(removed)], separators=(",", ":")).encode("ascii"), 1)


def unpack(data: bytes) -> tuple[dict[str, Node], tuple[str, ...]]:
    """What `pack` was given.

    Raises:
        ValueError: not written by `pack`, or not whole.
    """
    try:
        rows, removed = json.loads(zlib.decompress(data))
        return {row[0]: Node(_KINDS[row[1]], *row[2:]) for row in rows}, tuple(removed)
    except (zlib.error, TypeError, LookupError) as error:
        raise ValueError(f"not a packed tree: {error}") from error


_KINDS = {kind.value: kind for kind in Kind}
