"""The trees of a recorded run: the one it begins with, the contents that came later, and the way back to a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent.engine.proof import tree_of
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ReplayMismatchError, WorkspaceError
from sandbox_agent.events.redaction import Redactor
from sandbox_agent.records.noise import counts_in_tree
from sandbox_agent.records.steps import sha256_of
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import Kind
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


def materialise(listing: Sequence[JsonObject], blobs: Mapping[str, bytes], folder: Path) -> None:
    """Write a kept tree into an empty folder of ours.

    Raises:
        ReplayMismatchError: the bundle does not have a content, or names a path that is none.
        OSError: the system refused.
    """
    folders: list[tuple[Path, JsonObject]] = []
    for entry in sorted(listing, key=lambda one: str(one["path"])):
        target = folder / _below(str(entry["path"]))
        match entry["kind"]:
            case "directory":
                target.mkdir(mode=0o700, exist_ok=True)
                folders.append((target, entry))
            case "link":
                os.symlink(_bytes(str(entry["target"])), os.fsencode(target))
            case "file":
                _write_file(target, entry, blobs)
            case _:
                raise ReplayMismatchError(f"step 0: the bundle's tree has a {entry['kind']!r}", step=0)
    for target, entry in reversed(folders):
        os.chmod(target, int(entry["mode"]) & 0o777)
        os.utime(target, ns=(int(entry["mtime_ns"]),) * 2)


def _write_file(target: Path, entry: JsonObject, blobs: Mapping[str, bytes]) -> None:
    data = b"" if entry["sha256"] is None else blobs.get(entry["sha256"])
    if data is None:
        raise ReplayMismatchError(f"step 0: the bundle does not have the content of {entry['path']}", step=0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(target, flags, 0o600), "wb") as file:
        file.write(data)
    os.chmod(target, int(entry["mode"]) & 0o777)
    os.utime(target, ns=(int(entry["mtime_ns"]),) * 2)


def _below(path: str) -> Path:
    parts = Path(path).parts
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise ReplayMismatchError(f"step 0: the bundle's tree has a path that leads out of it: {path!r}", step=0)
    return Path(os.fsdecode(_bytes(path)))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _entry(path: str, node: Node, bases: Mapping[str, str]) -> JsonObject:
    entry: JsonObject = {"path": path, "kind": node.kind.value, "mode": node.mode, "mtime_ns": node.mtime_ns}
    if node.kind is Kind.LINK:
        return {**entry, "target": node.target}
    if node.kind is Kind.DIRECTORY:
        return entry
    # What covers a masked file is no file; the replay masks it again.
    return {**entry, "kind": "file", "sha256": bases.get(path) if node.kind is Kind.FILE else None}


def _secret(session: Session, nodes: Mapping[str, Node], bases: Mapping[str, str]) -> list[str]:
    assert session.checkpoints is not None
    store, redactor = session.checkpoints.steps.store, session.secrecy.redactor
    found = []
    for path, node in nodes.items():
        name = bases.get(path)
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


def after(listing: Iterable[JsonObject], changed: Sequence[Mapping[str, str | None]]) -> list[JsonObject]:
    """The tree after some steps: the base's, with what each changed."""
    tree = {str(entry["path"]): dict(entry) for entry in listing}
    for step in changed:
        for path, line in step.items():
            if line is None:
                tree.pop(path, None)
                continue
            kind, mode, rest = (*line.split(" ", 2), "")[:3]
            entry: JsonObject = {"path": path, "kind": kind, "mode": int(mode, 8), "mtime_ns": 0}
            known = tree.get(path, entry)
            entry["mtime_ns"] = known["mtime_ns"]
            if kind == "link":
                entry["target"] = rest
            elif kind == "file":
                entry["sha256"] = known.get("sha256") if rest == "base" else rest
            tree[path] = entry
    return list(tree.values())
