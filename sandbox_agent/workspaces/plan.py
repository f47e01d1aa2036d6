"""How a tree becomes another one: what to remove, make, write and set, in an order that works. A pure function.

What is the same in both is not touched. Hard links are made anew as a group when anything about one of them differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.snapshot import OWN, ROOT, Delta, Node, Snapshot, diff


class Act(NamedTuple):
    """One step: the letter that the hands know it by, its path, and, by letter, a target or the node to become."""

    letter: bytes
    path: str
    target: str = ""
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order. `files` are the contents that are needed, by path; `impossible` what cannot be made again."""

    acts: list[Act] = field(default_factory=list)
    files: dict[str, Node] = field(default_factory=dict)
    impossible: list[str] = field(default_factory=list)


def plan(current: Snapshot, wanted: Snapshot) -> Plan:
    """What makes `wanted` of `current`."""
    rewrite = _rewritten(current, wanted)
    made = Plan()
    for path in _tops({path for path in current.nodes if path not in wanted.nodes} | (rewrite & current.nodes.keys())):
        made.acts.append(Act(wire.REMOVE, path))
    for path in sorted(rewrite):
        _make(path, wanted.nodes[path], made)
    touched = {act.path.rpartition("/")[0] for act in made.acts}
    later = []
    for path, node in wanted.nodes.items():
        before = current.nodes.get(path)
        same = before is not None and _dressed(before) == _dressed(node)
        if path not in made.impossible and (path in rewrite or not same or path in touched):
            later.append(Act(wire.ATTRIBUTES, path, node=node))
    # A folder after what it holds: making that changes its time, and may need rights that its own mode denies.
    made.acts.extend(sorted(later, key=lambda act: act.path, reverse=True))
    return made


def _rewritten(current: Snapshot, wanted: Snapshot) -> set[str]:
    """Paths that have to be made anew; never the root, and a folder only where there is none."""
    rewrite = {
        delta.path
        for delta in diff(current, wanted)
        if delta.after is not None and not _dress_only(delta) and delta.path != ROOT
    }
    groups = {wanted.nodes[path].group for path in rewrite} - {None}
    if groups:
        rewrite |= {path for path, node in wanted.nodes.items() if node.group in groups}
    return rewrite


def _dress_only(delta: Delta) -> bool:
    """Whether the entry can stay, and be given what it is to have: not where it is somebody else's and is to be ours.

    A folder cannot be made anew for that: what it holds may not go.
    """
    was, now = delta.before, delta.after
    if delta.kind not in ("mode", "owner", "attributes") or was is None or now is None:
        return False
    return was.uid == now.uid or now.uid != OWN or now.kind is Kind.DIRECTORY


def _dressed(node: Node) -> tuple[int, int, int, int, str]:
    return node.mode, node.mtime_ns, node.uid, node.gid, node.attributes


def _tops(paths: set[str]) -> list[str]:
    """Without those that lie in another of them."""
    tops: list[str] = []
    for path in sorted(paths, key=lambda path: path + "/"):
        if not tops or not path.startswith(tops[-1] + "/"):
            tops.append(path)
    return tops


def _make(path: str, node: Node, made: Plan) -> None:
    if node.kind is Kind.DIRECTORY:
        made.acts.append(Act(wire.FOLDER, path))
    elif node.kind is Kind.LINK:
        made.acts.append(Act(wire.SYMLINK, path, node.target or ""))
    elif node.kind is Kind.OTHER and node.target == "p":
        made.acts.append(Act(wire.FIFO, path))
    elif node.kind is Kind.OTHER:
        made.impossible.append(path)
    elif node.group not in (None, path):
        made.acts.append(Act(wire.LINK, path, node.group or ""))
    else:
        made.acts.append(Act(wire.FILE, path, node=node))
        made.files[path] = node
