"""What a walk inside the container said, checked and compared with the last snapshot.

The bytes are hostile: whoever wrote them may have been a tool. They become fixed types within bounds or nothing at all.
An entry that says the very same as in the last walk is known by that; only what is new is parsed, which is what keeps
100,000 files cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Set
from dataclasses import dataclass, field

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.nofollow import MAX_PATH_BYTES
from sandbox_agent.workspaces.snapshot import ROOT, Node, Snapshot
from sandbox_agent.workspaces.tree import MAX_ENTRIES

FORMAT = r"%y %m %U %G %n %i %s %T@ %C@ %P\0%l\0"
"""For `find -printf`: numbers and the path below the start, then the target of a link."""

MAX_DEPTH = 200
MAX_WALK_BYTES = 512 * 1024 * 1024
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

_FIELDS = 9
_MAX_NUMBERS_BYTES = 220
_KINDS = {b"d": Kind.DIRECTORY, b"l": Kind.LINK, b"p": Kind.OTHER, b"s": Kind.OTHER, b"c": Kind.OTHER, b"b": Kind.OTHER}

Raw = dict[bytes, bytes]
"""Record (numbers and path) to link target, as they came."""


class MalformedWalkError(WorkspaceError):
    """The walk did not say what a walk says: something inside interfered, or the image has another `find`."""


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
    parts = data.split(b"\0")
    if len(parts) % 2 != 1 or parts[-1]:
        raise MalformedWalkError("the walk of the workspace ended in the middle of an entry")
    if len(parts) // 2 > MAX_ENTRIES:
        raise MalformedWalkError(f"the workspace holds more than {MAX_ENTRIES:,} entries; checkpoints end there")
    return dict(zip(parts[0:-1:2], parts[1::2], strict=True))


def closed_folders(raw: Raw, uid: int) -> list[bytes]:
    """Folders of the tools' own that nobody can list as they are (`chmod 000`): their owner has to be asked."""
    own, found = b"%d" % uid, []
    for record in raw:
        if record[:1] == b"d":
            fields = record.split(b" ", _FIELDS)
            if len(fields) > _FIELDS and fields[2] == own and _octal(fields[1]) & 0o500 != 0o500:
                found.append(fields[_FIELDS])
    return found


def known_records(raw: Raw, doubted: Collection[str], dropped: Collection[str]) -> set[bytes]:
    """The records that a snapshot stands for, to compare the next walk with.

    Args:
        raw: the walk the snapshot was made from.
        doubted: paths whose times prove nothing yet: they are looked at again whatever the next walk says.
        dropped: paths that the walk had and the snapshot has not.
    """
    known = set(raw)
    odd = {path.encode("utf-8", "surrogateescape") for path in (*doubted, *dropped)}
    if odd:
        known = {record for record in known if record.split(b" ", _FIELDS)[-1] not in odd}
        known |= {b"? 0 0 0 0 0 0 0 0 " + path.encode("utf-8", "surrogateescape") for path in doubted}
    return known


def compare(raw: Raw, known: Set[bytes], last: Snapshot) -> Seen:
    """Find out what is new in `raw`.

    Args:
        raw: the walk.
        known: the records of the walk that `last` stands for; none if it is not at hand.
        last: the last snapshot.
    """
    seen = Seen()
    fresh = raw.keys() - known
    nodes, skipped = nodes_of({record: raw[record] for record in fresh}, raw)
    for path, node in nodes.items():
        before = last.nodes.get(path)
        if node.kind is not Kind.FILE:
            if before is None or node != before:
                seen.nodes[path] = node
        elif before is not None and same_stamp(before, node):
            if (before.mode, before.uid, before.gid, before.links) != (node.mode, node.uid, node.gid, node.links):
                seen.nodes[path] = before._replace(mode=node.mode, uid=node.uid, gid=node.gid, links=node.links)
        elif node.size_bytes == 0:
            seen.nodes[path] = node._replace(sha256=EMPTY_SHA256)
        else:
            seen.fetch[path] = node
    gone = {_path(record) for record in known - raw.keys()} if known else last.nodes.keys()
    removed = sorted(path for path in gone if path in last.nodes and path not in nodes)
    return Seen(seen.fetch, seen.nodes, removed, skipped)


def nodes_of(fresh: Raw, raw: Raw) -> tuple[dict[str, Node], int]:
    """Some of the records of a walk as nodes, the files' content the base's; and how many could not be taken in."""
    nodes: dict[str, Node] = {}
    folders = {record.split(b" ", _FIELDS)[-1] for record in raw if record[:1] == b"d"}
    skipped = 0
    for record, target in fresh.items():
        fields = record.split(b" ", _FIELDS)
        node = _node(fields, target)
        if node is None or not _plausible(fields[_FIELDS], folders):
            skipped += 1
            continue
        nodes[fields[_FIELDS].decode("utf-8", "surrogateescape")] = node
        skipped += node.kind is Kind.DIRECTORY and fields[_FIELDS].count(b"/") >= MAX_DEPTH - 1
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


def file_node(numbers: bytes) -> Node | None:
    """The state of a file as the hands tell it: a record without a path. None where it is none."""
    return _node([*numbers.split(b" "), b""], b"")


def _node(fields: list[bytes], target: bytes) -> Node | None:
    """One record as a node. Of folders and links only what does not change by itself is kept."""
    if len(fields) != _FIELDS + 1 or sum(map(len, fields[:_FIELDS])) > _MAX_NUMBERS_BYTES:
        return None
    try:
        letter, mode, uid, gid = fields[0], int(fields[1], 8), int(fields[2]), int(fields[3])
        mtime_ns = _time(fields[7])
        if not 0 <= mode <= 0o7777 or uid < 0 or gid < 0:
            return None
        if letter == b"f":
            links, inode, size, ctime_ns = int(fields[4]), int(fields[5]), int(fields[6]), _time(fields[8])
            if links < 0 or inode < 0 or size < 0:
                return None
            return Node(Kind.FILE, mode, size, None, None, None, None, mtime_ns, uid, gid, inode, links, ctime_ns)
    except ValueError:
        return None
    kind = _KINDS.get(letter)
    if kind is None or (kind is Kind.LINK) != bool(target):
        return None
    text = target if kind is Kind.LINK else letter if kind is Kind.OTHER else None
    shown = None if text is None else text.decode("utf-8", "surrogateescape")
    return Node(kind, mode, target=shown, mtime_ns=mtime_ns, uid=uid, gid=gid)


def _time(text: bytes) -> int:
    """`find` writes a time before 1970 as seconds rounded down, and the fraction that is added to them."""
    seconds, _, fraction = text.partition(b".")
    if not fraction.isdigit():
        raise ValueError("not a time")
    return int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))


def _octal(text: bytes) -> int:
    try:
        return int(text, 8)
    except ValueError:
        return 0o777


def _path(record: bytes) -> str:
    return record.split(b" ", _FIELDS)[-1].decode("utf-8", "surrogateescape")


def _plausible(path: bytes, folders: set[bytes]) -> bool:
    """A plain path below the root whose folder is in the walk, as a folder."""
    if path == ROOT.encode():
        return True
    above, _, name = path.rpartition(b"/")
    return name not in (b"", b".", b"..") and len(path) <= MAX_PATH_BYTES and above in folders
