"""The trees of a recorded run: the one it begins with, the contents that came later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_agent.engine.proof import tree_of
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.events.redaction import Redactor
from sandbox_agent.records.noise import counts_in_tree
from sandbox_agent.records.steps import sha256_of
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import FIFO, SOCKET
from sandbox_agent.workspaces.snapshot import Node
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.walked import EMPTY_SHA256

MIB = 1024 * 1024
SMALL_TREE_BYTES = 2 * MIB
"""A folder of so much is kept in every bundle; a larger one where it is asked for."""

LARGEST_TREE_BYTES = 128 * MIB
"""A folder with more is not read for a bundle: neither kept nor compared by its contents."""

CHANGED_FILE_BYTES = 2 * MIB
"""Of a file that the run changed; a larger one is compared by its hash and not kept."""


@dataclass(frozen=True, slots=True)
class BaseTree:
    """The tree at the beginning. `facts` are for the lock; `listing` is what is kept of it, None where nothing is;
    `contents` are the names of its contents, `not_pinned` says what is not known of it."""

    facts: JsonObject
    listing: list[JsonObject] | None = None
    contents: frozenset[str] = frozenset()
    not_pinned: tuple[str, ...] = ()


@dataclass(slots=True)
class Found:
    """Contents for a bundle. `left_out` are those that are not in it, with the reason."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


async def base_of(session: Session, *, keep: bool) -> BaseTree:
    """The session's tree before its first tool."""
    checkpoints = session.checkpoints
    if checkpoints is None or not checkpoints.begun:
        return BaseTree({"kept": False, "sha256": None}, not_pinned=("the folder: there are no checkpoints here",))
    nodes = checkpoints.nodes
    size = sum(node.size_bytes for node in nodes.values() if node.kind is Kind.FILE)
    facts: JsonObject = {"kept": False, "sha256": None, "paths": len(nodes), "bytes": size}
    if size > LARGEST_TREE_BYTES:
        why = f"what is in the folder's files at the beginning ({size / MIB:,.0f} MiB, too much to be read)"
        return BaseTree(facts, not_pinned=(why,))
    bases = await checkpoints.read_base()
    nodes = checkpoints.nodes
    facts["sha256"] = base_sha256(nodes, bases)
    unread = [path for path, node in nodes.items() if node.kind is Kind.FILE and not bases.get(path)]
    if unread:
        return BaseTree(facts, not_pinned=(f"what is in {len(unread)} files that could not be read",))
    if size > SMALL_TREE_BYTES and not keep:
        return BaseTree(facts)
    secret = _secret(session, nodes, bases)
    if secret:
        return BaseTree({**facts, "left_out": f"{len(secret)} files hold secrets"})
    devices = [path for path, node in nodes.items() if node.kind is Kind.OTHER and node.target not in (FIFO, SOCKET)]
    if devices:
        return BaseTree({**facts, "left_out": f"{len(devices)} devices are in it"})
    listing = [_entry(path, node, bases) for path, node in sorted(nodes.items())]
    return BaseTree({**facts, "kept": True}, listing, frozenset(bases[path] for path in nodes if path in bases))


async def tree_now(session: Session) -> dict[str, str]:
    """The tree as it is now, in the form that is compared; {} where nobody can look."""
    if session.checkpoints is None:
        return {}
    await session.checkpoints.settled()
    await session.checkpoints.look()
    return tree_of(session.checkpoints.nodes)


def base_sha256(nodes: Mapping[str, Node], bases: Mapping[str, str]) -> str:
    """What a tree at the beginning is recognised by: paths, modes, contents and targets."""
    lines = {}
    for path, node in nodes.items():
        if node.kind is Kind.FILE and counts_in_tree(path):
            lines[path] = f"file {node.mode:o} {bases.get(path, '')}"
        elif node.kind is Kind.DIRECTORY:
            lines[path] = f"directory {node.mode:o}"
        elif node.kind is Kind.LINK:
            lines[path] = f"link {node.target}"
    return sha256_of(lines)


def contents_of(session: Session, base: BaseTree | None, tape: bytes) -> Found:
    """The contents that a bundle is to have: of the base where it is kept, and of all that was changed."""
    found = Found()
    checkpoints = session.checkpoints
    if checkpoints is None:
        return found
    wanted = set(base.contents) if base is not None and base.listing is not None else set()
    for line in tape.splitlines():
        step = json.loads(line)
        if step["kind"] == "tree":
            files = (one.split(" ") for one in step["data"]["changed"].values() if one is not None)
            wanted |= {parts[2] for parts in files if parts[0] == "file" and parts[2] != "base"}
    for name in sorted(wanted):
        _add(found, name, checkpoints.steps.store, session.secrecy.redactor)
    return found


def holds_secret(redactor: Redactor, data: bytes) -> bool:
    """Whether a content has a secret in it, in any of the forms that are looked for."""
    return redactor.holds(data.decode("utf-8", "replace"))


def _entry(path: str, node: Node, bases: Mapping[str, str]) -> JsonObject:
    entry: JsonObject = {"path": path, "kind": node.kind.value, "mode": node.mode, "mtime_ns": node.mtime_ns}
    if node.kind in (Kind.LINK, Kind.OTHER):
        return {**entry, "target": node.target}
    if node.kind is Kind.FILE:
        return {**entry, "sha256": bases.get(path), "group": node.group}
    return entry


def _secret(session: Session, nodes: Mapping[str, Node], bases: Mapping[str, str]) -> list[str]:
    assert session.checkpoints is not None
    store, redactor = session.checkpoints.steps.store, session.secrecy.redactor
    found = []
    for path, node in nodes.items():
        name = bases.get(path)
        if redactor.holds(path) or redactor.holds(node.target):
            found.append(path)
            continue
        if node.kind is not Kind.FILE or not node.size_bytes or not name:
            continue
        if holds_secret(redactor, store.read(name, LARGEST_TREE_BYTES)):
            found.append(path)
    return found


def _add(found: Found, name: str, store: Store, redactor: Redactor) -> None:
    if name in found.blobs or not all(one in "0123456789abcdef" for one in name):
        return
    try:
        data = b"" if name == EMPTY_SHA256 else store.read(name, CHANGED_FILE_BYTES)
    except WorkspaceError:
        found.left_out[name] = "too large, or not kept"
        return
    if holds_secret(redactor, data):
        found.left_out[name] = "holds a secret"
    else:
        found.blobs[name] = data
