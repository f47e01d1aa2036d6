"""Bringing a tree back: what differs is found, all contents are made sure of, and only then anything is touched.

The tree is looked at again afterwards: it is what it was to be, or the error names the paths that are not. Done again
after an interruption it comes to the same, for it starts from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import anyio

from sandbox_agent.engine.taking import Taker
from sandbox_agent.engine.told import shown
from sandbox_agent.errors import SandboxStartError, SandboxUnavailableError, WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.plan import Plan, plan
from sandbox_agent.workspaces.snapshot import OWN, Delta, Node, Snapshot, diff, snapshot_of
from sandbox_agent.workspaces.steps import Loaded, Step

SHOWN_PATHS = 10
_SET_ID = 0o6000


class ContentMissingError(WorkspaceError):
    """Something that would have to be written is nowhere to be had; nothing was touched."""


class NotRestoredError(WorkspaceError):
    """The tree did not become what it was to be; it may be partly so. The text names the paths."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Where the files of a plan are in the store, and those that are not to be had."""

    names: dict[str, str]
    missing: dict[str, Node]


@dataclass(frozen=True, slots=True)
class Restored:
    """What could not be brought back: sockets and devices, and files that the person had changed before they were kept.

    Those are as they were before. `strangers` are back, but belong to the tools and not to whom they did, each with the
    reason.
    """

    impossible: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    strangers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reached:
    """What an undo came to: the step whose tree is back, the new step that it made, how many paths differ from before,
    and what was not brought back."""

    target: Step
    step: Step
    changed: int
    restored: Restored


async def restore(
    taker: Taker, target: Snapshot, bases: Mapping[str, str], *, begun: Callable[[], None] = lambda: None
) -> Restored:
    """Make the workspace what `target` says; `taker` has just looked, and looks again at the end.

    Args:
        taker: the workspace; nothing else may be at work in it.
        target: the tree to be.
        bases: contents of the base that `target` is of.
        begun: called when all is there, before anything is touched.

    Raises:
        ContentMissingError, NotRestoredError: see there.
        HandsLostError: interrupted; call it again after another look.
    """
    made = plan(taker.snapshot, target)
    contents = await anyio.to_thread.run_sync(_contents, taker, made, bases)
    theirs = {path for path, node in contents.missing.items() if node.sha256 is None}
    if theirs:
        target = _keeping(taker.snapshot, target, theirs)
        made = plan(taker.snapshot, target)
        contents = await anyio.to_thread.run_sync(_contents, taker, made, bases)
    if contents.missing:
        raise ContentMissingError(
            f"{shown(sorted(contents.missing), SHOWN_PATHS)}: the content was not kept (too large or unreadable), so "
            "nothing was brought back; choose another step"
        )
    await anyio.to_thread.run_sync(begun)
    faults = await taker.hands.put(made, contents.names, taker.store)
    touched = {act.path for act in made.acts} | (taker.snapshot.nodes.keys() - target.nodes.keys())
    # Nothing else is at work in there, so nothing else can have changed; a folder changes with what is in it.
    await taker.look_at(touched | {path.rpartition("/")[0] for path in touched})
    target = _named(target, taker)
    strangers = await _to_owners(taker, diff(taker.snapshot, target))
    left = made.impossible + list(strangers)
    wrong = [delta.path for delta in diff(taker.snapshot, target) if delta.path not in left]
    if wrong:
        why = f" ({'; '.join(faults[:3])})" if faults else ""
        raise NotRestoredError(f"{shown(wrong, SHOWN_PATHS)}: could not be brought back as it was{why}")
    return Restored(tuple(made.impossible), tuple(sorted(theirs)), strangers)


async def _to_owners(taker: Taker, deltas: Sequence[Delta]) -> dict[str, str]:
    """Give what is all right but for its owner to whom it belonged; returns what could not be given, with reasons.

    Whoever is at work inside could say that a file was root's. So only those owners count that the person's own folder
    had at the start, for that very path; and nothing with set-id bits is given away.
    """
    known = await anyio.to_thread.run_sync(taker.strangers)
    wanted: dict[str, tuple[int, int]] = {}
    left: dict[str, str] = {}
    for delta in deltas:
        was, now = delta.before, delta.after
        if was is None or now is None:
            continue
        lacks_bits = was.mode != now.mode and was.mode == now.mode & ~_SET_ID
        if was._replace(uid=now.uid, gid=now.gid, mode=now.mode if lacks_bits else was.mode).line("") != now.line(""):
            continue
        if (was.uid, was.gid) == (now.uid, now.gid):
            left[delta.path] = "had set-id bits, which nothing in a sandbox can give"
            continue
        ids = (_id(now.uid, taker.owner.uid), _id(now.gid, taker.owner.gid))
        if known.get(delta.path) != ids:
            left[delta.path] = f"belonged to {ids[0]}:{ids[1]}, but not when the session began"
        elif now.mode & _SET_ID and (lacks_bits or now.kind is Kind.FILE):
            left[delta.path] = f"belonged to {ids[0]}:{ids[1]}, and has set-id bits"
        else:
            wanted[delta.path] = ids
    if wanted:
        why = "could not be given to its owner"
        try:
            await taker.hands.sandbox.give_back(wanted)
        except (SandboxUnavailableError, SandboxStartError) as error:
            why = str(error)
        await taker.look_at(wanted.keys() | {path.rpartition("/")[0] for path in wanted})
        for path, (uid, gid) in wanted.items():
            node = taker.snapshot.nodes.get(path)
            if node is not None and (_id(node.uid, taker.owner.uid), _id(node.gid, taker.owner.gid)) != (uid, gid):
                left[path] = f"belonged to {uid}:{gid}: {why}"
    return left


def _id(number: int, own: int) -> int:
    return own if number == OWN else number


def _named(target: Snapshot, taker: Taker) -> Snapshot:
    """The target in the taker's words: content that turned out to be the base's, as of a file that was only touched
    before a fork, has no name of its own.
    """
    same = {
        path: node._replace(sha256=None)
        for path, node in target.nodes.items()
        if node.sha256 is not None and not node.lost and taker.bases.get(path) == node.sha256
    }
    return target.changed(same, ()) if same else target


def _keeping(current: Snapshot, target: Snapshot, paths: Set[str]) -> Snapshot:
    """The target with some paths as they are now."""
    kept = {path: current.nodes[path]._replace(group=None) for path in paths if path in current.nodes}
    return target.changed(kept, paths - kept.keys())


def _contents(taker: Taker, made: Plan, bases: Mapping[str, str]) -> Contents:
    found = Contents({}, {})
    for path, node in made.files.items():
        if node.size_bytes:
            name = taker.content_of(path, node, bases)
            if name is None:
                found.missing[path] = node
            else:
                found.names[path] = name
    return found


@dataclass(frozen=True, slots=True)
class Adopted:
    """The tree that a fork's fresh workspace is to have. `theirs` are paths that are as the person has them now."""

    target: Snapshot
    theirs: list[str]


def adopt(wanted: Loaded, here: Snapshot, has: Callable[[str], bool]) -> Adopted:
    """Say a tree of another workspace in the terms of this one, whose base is the person's folder as it is now.

    Args:
        wanted: the tree, with the contents of its own base that are known.
        here: the fresh workspace.
        has: whether a content is in this session's store.
    """
    nodes: dict[str, Node] = {}
    theirs = []
    for path, node in wanted.snapshot.nodes.items():
        now = here.nodes.get(path)
        sha256 = wanted.bases.get(path, "")
        if node.kind is not Kind.FILE or node.sha256 is not None or _same_base(node, now):
            nodes[path] = node
        elif sha256 and has(sha256):
            nodes[path] = node._replace(sha256=sha256)
        else:
            theirs.append(path)
            if now is not None:
                nodes[path] = now
    return Adopted(snapshot_of(nodes), theirs)


def _same_base(node: Node, now: Node | None) -> bool:
    return (
        now is not None and now.kind is Kind.FILE and (node.size_bytes, node.mtime_ns) == (now.size_bytes, now.mtime_ns)
    )
