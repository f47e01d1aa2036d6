"""What a walk inside the container said, checked and compared with the last snapshot.

The bytes are hostile: whoever wrote them may have been a tool. They become fixed types within bounds or nothing at all.
Most walks tell only what differs from the one before, which is what keeps 100,000 files cheap.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind, Owner
from sandbox_agent.workspaces.inside.entry import FIELDS
from sandbox_agent.workspaces.inside.walk import MAX_DEPTH, MAX_ENTRIES
from sandbox_agent.workspaces.nofollow import MAX_PATH_BYTES
from sandbox_agent.workspaces.snapshot import OWN, ROOT, Node, Snapshot

MAX_WALK_BYTES = 512 * 1024 * 1024
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

_MAX_NUMBERS_BYTES = 220
_ATTRIBUTES = re.compile(r"(?:[0-9a-f]{2})+=(?:[0-9a-f]{2})*(?:,(?:[0-9a-f]{2})+=(?:[0-9a-f]{2})*)*")
_DEVICE = re.compile(rb"\d{1,7}:\d{1,7}")
_KINDS = {b"l": Kind.LINK, b"p": Kind.OTHER, b"s": Kind.OTHER, b"c": Kind.OTHER, b"b": Kind.OTHER}

Raw = dict[bytes, bytes]
"""Record (numbers and path) to link target, as they came."""


class MalformedWalkError(WorkspaceError):
    """The walk did not say what a walk says: something inside interfered, or the image has another `find`."""


class TooManyEntriesError(MalformedWalkError):
    """It has more entries than are looked at."""

    def __init__(self) -> None:
        super().__init__(f"the workspace holds more than {MAX_ENTRIES:,} entries; checkpoints end there")


@dataclass(frozen=True, slots=True)
class Seen:
    """How a walk differs from the last snapshot.

    `fetch` are files whose content must be read. `nodes` are all other new or changed ones, `removed` the paths that
    are gone. `skipped` counts what could not be taken in: names too long, folders nested too deep.
    """

    fetch: dict[str, Node] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    skipped: int = 0


def parse(data: bytes) -> Raw:
    """The records of a walk.

    Raises:
        MalformedWalkError: it is no whole walk, or has too many entries.
    """
    ends = data.count(b"\0")  # before they are split: nothing but NULs would take eight times their size
    if ends // 2 > MAX_ENTRIES:
        raise TooManyEntriesError
    if ends % 2 or (data and not data.endswith(b"\0")):
        raise MalformedWalkError("the walk of the workspace ended in the middle of an entry")
    parts = data.split(b"\0")
    return dict(zip(parts[0:-1:2], parts[1::2], strict=True))


def parse_gone(data: bytes) -> set[str]:
    """The paths that are no more.

    Raises:
        MalformedWalkError: they are not whole, or too many.
    """
    if data.count(b"\0") > MAX_ENTRIES:
        raise TooManyEntriesError
    *paths, rest = data.split(b"\0")
    if rest:
        raise MalformedWalkError("the walk of the workspace ended in the middle of an entry")
    return {path.decode("utf-8", "surrogateescape") for path in paths}


def compare(fresh: Raw, gone: Collection[str] | None, last: Snapshot, owner: Owner | None = None) -> Seen:
    """Find out what is new.

    Args:
        fresh: the records of the walk: all, or those that are new since the last one.
        gone: paths that are no more, or had to be told again; None when `fresh` are all records.
        last: the last snapshot.
        owner: see `nodes_of`.

    Raises:
        MalformedWalkError: the workspace itself is not among it.
    """
    seen = Seen()
    nodes, skipped = nodes_of(fresh, {} if gone is None else last.nodes, owner)
    for path, node in nodes.items():
        before = last.nodes.get(path)
        if node.kind is not Kind.FILE:
            if before is None or node != before:
                seen.nodes[path] = node
        elif before is not None and same_stamp(before, node):
            now = node._replace(sha256=before.sha256, group=before.group, flag=before.flag)
            if now != before:
                seen.nodes[path] = now
        elif node.size_bytes == 0:
            seen.nodes[path] = node._replace(sha256=EMPTY_SHA256)
        else:
            seen.fetch[path] = node
    candidates = last.nodes.keys() if gone is None else gone
    removed = sorted({path for path in candidates if path in last.nodes and path not in nodes})
    if ROOT in removed:
        raise MalformedWalkError("the walk of the workspace did not see the workspace")
    return Seen(seen.fetch, seen.nodes, removed, skipped)


def nodes_of(fresh: Raw, known: Mapping[str, Node], owner: Owner | None = None) -> tuple[dict[str, Node], int]:
    """Records as nodes, the files' content the base's; and how many could not be taken in.

    Args:
        fresh: the records.
        known: nodes of the tree that they are added to.
        owner: who the tools run as, to be told from others.
    """
    own = _own(owner)
    nodes: dict[str, Node] = {}
    folders = {record.split(b" ", FIELDS)[-1] for record in fresh if record[:1] == b"d"}
    skipped = 0
    for record, target in fresh.items():
        fields = record.split(b" ", FIELDS)
        node = _node(fields, target, own)
        if node is None or not _plausible(fields[FIELDS], folders, known):
            skipped += 1
            continue
        nodes[fields[FIELDS].decode("utf-8", "surrogateescape")] = node
        skipped += node.kind is Kind.DIRECTORY and fields[FIELDS].count(b"/") >= MAX_DEPTH - 1
    return nodes, skipped


def same_stamp(one: Node, other: Node) -> bool:
    """Whether two nodes of one path are of the same file, untouched. A ctime of 0 proves nothing."""
    return (
        one.kind is other.kind is Kind.FILE
        and one.ctime_ns == other.ctime_ns != 0
        and one.inode == other.inode
        and one.size_bytes == other.size_bytes
        and one.mtime_ns == other.mtime_ns
    )


def file_node(record: bytes, owner: Owner | None = None) -> Node | None:
    """The state of a file as the hands tell it: a record with an empty path. None where it is none."""
    node = _node(record.split(b" ", FIELDS), b"", _own(owner))
    return node if node is not None and node.kind is Kind.FILE else None


def _own(owner: Owner | None) -> tuple[bytes, bytes]:
    return (b"", b"") if owner is None else (b"%d" % owner.uid, b"%d" % owner.gid)


def _node(fields: list[bytes], target: bytes, own: tuple[bytes, bytes]) -> Node | None:
    """One record as a node. Of folders and links only what does not change by itself is kept."""
    if len(fields) != FIELDS + 1 or sum(map(len, fields[:FIELDS])) > _MAX_NUMBERS_BYTES:
        return None
    try:
        letter, mode, mtime_ns = fields[0], int(fields[1], 8), _time(fields[7])
        uid = OWN if fields[2] == own[0] else int(fields[2])
        gid = OWN if fields[3] == own[1] else int(fields[3])
        attributes = target.decode("ascii", "replace") if target and letter in (b"f", b"d") else ""
        if not 0 <= mode <= 0o7777 or fields[2][:1] == b"-" or fields[3][:1] == b"-":
            return None
        if attributes and not _ATTRIBUTES.fullmatch(attributes):
            return None
        if letter == b"f":
            links, inode, size, ctime_ns = int(fields[4]), int(fields[5]), int(fields[6]), _time(fields[8])
            if links < 0 or inode < 0 or size < 0:
                return None
            known = (mtime_ns, uid, gid, inode, links, ctime_ns)
            return Node(Kind.FILE, mode, size, None, None, None, None, *known, attributes)
    except ValueError:
        return None
    if letter == b"d":
        return Node(Kind.DIRECTORY, mode, mtime_ns=mtime_ns, uid=uid, gid=gid, attributes=attributes)
    kind = _KINDS.get(letter)
    if kind is None or (kind is Kind.LINK or letter in b"cb") != bool(target):
        return None
    if kind is Kind.OTHER and target:
        if not _DEVICE.fullmatch(target):
            return None
        target = letter + b" " + target
    text = letter if kind is Kind.OTHER and not target else target
    shown = text.decode("utf-8", "surrogateescape") if text else None
    return Node(kind, mode, target=shown, mtime_ns=mtime_ns, uid=uid, gid=gid)


def _time(text: bytes) -> int:
    """`find` writes a time before 1970 as seconds rounded down, and the fraction that is added to them."""
    seconds, _, fraction = text.partition(b".")
    if not fraction.isdigit():
        raise ValueError("not a time")
    return int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))


def _plausible(path: bytes, folders: set[bytes], known: Mapping[str, Node]) -> bool:
    """A plain path below the root whose folder is there, as a folder."""
    if path == ROOT.encode():
        return True
    above, _, name = path.rpartition(b"/")
    if name in (b"", b".", b"..") or len(path) > MAX_PATH_BYTES:
        return False
    if above in folders:
        return True
    node = known.get(above.decode("utf-8", "surrogateescape"))
    return node is not None and node.kind is Kind.DIRECTORY
