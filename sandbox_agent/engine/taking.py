"""The tree as it was last seen, and looking again: a walk, the contents of what changed, and the next snapshot.

Knows nothing of steps, sessions or events. Content that was there before the first tool stays unnamed (the base's) for
as long as nobody changes it, and is taken from the person's folder when somebody first does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import anyio

from sandbox_agent.engine.hands import BYTES_AT_ONCE, Given, Hands, Walked, batches
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.workspaces.base import Kind, Owner
from sandbox_agent.workspaces.basefiles import BaseFiles
from sandbox_agent.workspaces.snapshot import LOST_TOO_LARGE, TORN, Delta, Node, Snapshot, change, snapshot_of
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.walked import (
    EMPTY_SHA256,
    Seen,
    compare,
    nodes_of,
    parse,
    parse_gone,
)

CHECKPOINT_BYTES = 256 * MIB
"""What one checkpoint may add to the store, holes not counted; and what it may read for that, the same content again
counted, and holes to an eighth: the next call waits for it."""

SESSION_BYTES = 4096 * MIB
"""What all checkpoints of a session may take."""

RESTORE_BYTES = 64 * 1024 * MIB
"""No file of a container is larger; what is brought back has to be in the store first, whatever its size."""

READ_TRIES = 3
"""How often a file that changes while it is read is read again, before it is kept as it was read."""


@dataclass(slots=True)
class Limits:
    """How much may be kept. `used_bytes` is what the store has by now."""

    checkpoint_bytes: int = CHECKPOINT_BYTES
    session_bytes: int = SESSION_BYTES
    used_bytes: int = 0

    def left_bytes(self, taken_bytes: int) -> int:
        """What may still come, when the checkpoint has taken so much."""
        return max(0, min(self.checkpoint_bytes - taken_bytes, self.session_bytes - self.used_bytes))


@dataclass(slots=True)
class Fetched:
    """Contents that were read. `gone` are files that are none any more; `bytes` were added to the store, `cost_bytes`
    is what reading took."""

    nodes: dict[str, Node] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    bytes: int = 0
    cost_bytes: int = 0


class Taker:
    """The tree of one workspace through one sandbox. Not for concurrent use.

    `snapshot` is the last one; `bases` names contents of the base as far as they are known ("" is one that is lost);
    `touched` and `learned` are the paths that changed, and the bases that came, since somebody last cleared them.
    """

    def __init__(self, hands: Hands, store: Store, base: BaseFiles, *, owner: Owner, limits: Limits) -> None:
        """`owner` is who the tools run as."""
        self.hands = hands
        self.owner = owner
        self.store = store
        self.snapshot = snapshot_of({})
        self.bases: dict[str, str] = {}
        self.touched: set[str] = set()
        self.learned: dict[str, str] = {}
        self.skipped = 0
        self._base = base
        self._limits = limits
        self._doubted: set[str] = set()
        self._in_step = False

    async def begin(self) -> None:
        """Take the tree as it is for the base."""
        walk = await self.hands.walk((), whole=True)

        def make() -> Snapshot:
            nodes, self.skipped = nodes_of(parse(walk.fresh), {}, self.owner)
            return snapshot_of(nodes)

        self.snapshot = await anyio.to_thread.run_sync(make)
        self._in_step = True
        self.touched = set(self.snapshot.nodes)

    def resume(self, snapshot: Snapshot, bases: Mapping[str, str]) -> None:
        """Go on from what an earlier process saw."""
        self.snapshot, self.bases = snapshot, dict(bases)

    async def look(self) -> list[Delta]:
        """Bring `snapshot` up to date; returns what differs from before."""
        whole, self._in_step = not self._in_step, False
        deltas = await self._see(await self.hands.walk(self._doubted, whole=whole), self._doubted)
        self._in_step = True  # from here on, what the other side calls new is new to us, too
        return deltas

    async def look_at(self, paths: Set[str]) -> None:
        """Bring `snapshot` up to date where only these paths can have changed."""
        doubted = self._doubted
        await self._see(await self.hands.tell(sorted(paths)), paths)
        # The other side's last walk knows nothing of these: what of them has gone by the next one, it would not miss.
        self._doubted |= doubted | paths

    async def _see(self, walk: Walked, told: Set[str]) -> list[Delta]:
        """Take over a walk; the paths in `told` are gone if it does not have them."""
        before = self.snapshot
        seen = await anyio.to_thread.run_sync(_seen, walk, told, before, self.owner)
        self.skipped = seen.skipped
        await self._learn(_base_files(before, (*seen.fetch, *seen.nodes, *seen.removed)))
        fetched = await self._fetch(seen.fetch)
        return await anyio.to_thread.run_sync(self._take_over, seen, fetched)

    def _take_over(self, seen: Seen, fetched: Fetched) -> list[Delta]:
        before = self.snapshot
        changed = {path: self._named(path, node) for path, node in (seen.nodes | fetched.nodes).items()}
        removed = [*seen.removed, *(path for path in fetched.gone if path in before.nodes)]
        self._doubted = {path for path, node in fetched.nodes.items() if node.ctime_ns == 0} | fetched.gone
        self.snapshot, deltas = change(before, changed, removed)
        self.touched |= {*changed, *removed, *(delta.path for delta in deltas)}
        return deltas

    def _named(self, path: str, node: Node) -> Node:
        """Content that a path has had in the base is the base's again, so that trees compare equal."""
        if node.sha256 is not None and self.bases.get(path) == node.sha256 and not node.lost:
            return node._replace(sha256=None)
        return node

    async def learn_all(self) -> None:
        """Keep every content of the base now: for a folder that is changed in place."""
        await self._learn(_base_files(self.snapshot, self.snapshot.nodes))

    async def read_base(self) -> None:
        """Keep every content of the base as the sandbox shows it now, where nobody has changed anything yet."""
        files = _base_files(self.snapshot, self.snapshot.nodes)
        fetched = await self._fetch({path: node for path, node in files.items() if path not in self.bases})
        found = {path: node.sha256 for path, node in fetched.nodes.items() if node.sha256 and not node.lost}
        self.bases |= found
        self.learned |= found

    async def _learn(self, files: Mapping[str, Node]) -> None:
        """Name and keep the base's contents of files that are no longer what they were."""
        wanted = {path: node for path, node in files.items() if path not in self.bases}
        if wanted:
            found = await anyio.to_thread.run_sync(self._keep, wanted)
            self.bases |= found
            self.learned |= found

    def _keep(self, files: Mapping[str, Node]) -> dict[str, str]:
        found: dict[str, str] = {}
        taken = 0
        with self.store.batch() as batch:
            for path, node in files.items():
                limit = self._limits.left_bytes(taken)
                sha256 = self._base.keep(path, node, batch, limit) if node.size_bytes else EMPTY_SHA256
                taken += node.size_bytes if sha256 is not None else 0
                found[path] = sha256 or self._base.known_sha256(path) or ""
        self._limits.used_bytes += taken
        return found

    def prepare(self) -> None:
        """Have at hand what is needed of the base when the first of its files changes."""
        self._base.prepare()

    def strangers(self) -> dict[str, tuple[int, int]]:
        """Whom paths of the base belong to that are not the tools'; the person's folder said so, and nobody inside."""
        return self._base.strangers

    def content_of(self, path: str, node: Node, bases: Mapping[str, str]) -> str | None:
        """The name of a content that the store has; None when it is nowhere to be had.

        Args:
            path: a path.
            node: what the path is to be.
            bases: contents of the base that `node` is of.
        """
        sha256 = bases.get(path) if node.sha256 is None else node.sha256
        if sha256 and self.store.has(sha256):
            return sha256
        if node.sha256 is not None or not sha256:
            return None
        # It was too large to be kept: the person's folder is the only other place, if it is still that content there.
        return sha256 if self._base.keep(path, node, self.store, RESTORE_BYTES) == sha256 else None

    async def _fetch(self, files: Mapping[str, Node]) -> Fetched:
        """Read contents; a file that changes meanwhile is read again, and at last kept as it was read."""
        fetched, pending = Fetched(), files
        at_once = min(BYTES_AT_ONCE, self._limits.checkpoint_bytes)
        for attempt in range(READ_TRIES):
            again: list[str] = []
            for batch in batches(pending, at_once):
                for path, given in (await self._given(batch, fetched)).items():
                    self._count(fetched, given)
                    if given.node is not None and not given.stable and attempt < READ_TRIES - 1:
                        again.append(path)
                    else:
                        _settle(path, files[path], given, fetched)
            pending = {path: files[path] for path in again}
        return fetched

    async def _given(self, batch: Sequence[str], fetched: Fetched) -> dict[str, Given]:
        """What becomes of some files, of which none is read any more when enough was."""
        limit = self._limits.left_bytes(fetched.bytes)
        unread = max(0, self._limits.checkpoint_bytes - fetched.cost_bytes)
        once_more = fetched.cost_bytes < 2 * self._limits.checkpoint_bytes
        kept = {path: self._kept_bytes(path) if once_more else 0 for path in batch}
        asked = [path for path in batch if unread or kept[path]]
        answers = dict.fromkeys(batch, Given(lost=LOST_TOO_LARGE))
        if asked:
            most = max(min(limit, unread), *(kept[path] for path in asked))
            given = await self.hands.give(asked, self.store, limit, most_bytes=most)
            answers |= zip(asked, given, strict=True)
        return answers

    def _count(self, fetched: Fetched, given: Given) -> None:
        fetched.cost_bytes += given.cost_bytes
        if given.node is not None:
            fetched.bytes += given.added_bytes
            self._limits.used_bytes += given.added_bytes

    def _kept_bytes(self, path: str) -> int:
        """The size of what a path has in the store: that much can be read again beyond the limit."""
        node = self.snapshot.nodes.get(path)
        return node.size_bytes if node is not None and node.sha256 is not None and not node.lost else 0


def _seen(walk: Walked, told: Set[str], last: Snapshot, owner: Owner) -> Seen:
    """How a walk differs from the last snapshot; what had to be told is gone where it was not."""
    return compare(parse(walk.fresh), None if walk.whole else parse_gone(walk.gone) | told, last, owner)


def _settle(path: str, seen: Node, given: Given, fetched: Fetched) -> None:
    if given.node is not None:
        # A ctime of 0 is no file's: the next walk will not take it for unchanged.
        doubted = given.racy or not given.stable
        node = given.node._replace(attributes=seen.attributes)
        node = node._replace(ctime_ns=0) if doubted else node
        fetched.nodes[path] = node if given.stable else node._replace(flag=TORN)
    elif given.lost is not None:
        name = hashlib.sha256(f"{given.lost} {seen.inode} {seen.size_bytes} {seen.ctime_ns}".encode()).hexdigest()
        fetched.nodes[path] = seen._replace(sha256=name, flag=given.lost)
    else:
        fetched.gone.add(path)


def _base_files(snapshot: Snapshot, paths: Iterable[str]) -> dict[str, Node]:
    """Those of the paths that are files with the base's content."""
    found = {}
    for path in paths:
        node = snapshot.nodes.get(path)
        if node is not None and node.kind is Kind.FILE and node.sha256 is None:
            found[path] = node
    return found
