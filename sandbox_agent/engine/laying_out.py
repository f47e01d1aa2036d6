"""A tree of a bundle as a folder on this machine.

A bundle comes from anywhere, so nothing of a tree is written before all of it was looked at: each path lies in a folder
that the same tree has, so none leads through a link, and none is there twice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import FIFO, SOCKET
from sandbox_agent.workspaces.snapshot import ROOT

ALL_BITS = 0o7777
FOR_PEOPLE = 0o1777
"""Of a mode, in a folder that stays: no file of it may run as somebody else."""

_MOST_NS = 2**62
_SPECIAL = {FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK}


def lay_out(listing: Sequence[JsonObject], blobs: Mapping[str, bytes], folder: Path, *, bits: int = ALL_BITS) -> None:
    """Write a kept tree into an empty folder of ours.

    Args:
        listing: the tree, as `recorded_tree` lists it.
        blobs: contents by their SHA-256.
        folder: where nobody else can write.
        bits: of the modes, those that are set.

    Raises:
        ReplayMismatchError: the bundle does not have a content, or no tree can be so.
        OSError: the system refused.
    """
    tree = _tree(listing)
    missing = next((path for path, one in tree.items() if one["kind"] == "file" and _data(one, blobs) is None), None)
    if missing is not None:
        raise _refused(f"the bundle does not have the content of {missing}")
    folders = []
    for path, entry in tree.items():
        target = os.fsencode(folder) + b"/" + _bytes(path)
        match entry["kind"]:
            case "directory":
                if path != ROOT:
                    os.mkdir(target, 0o700)
                folders.append((target, entry))
                continue
            case "link":
                os.symlink(_bytes(entry["target"]), target)
                continue
            case "other":
                os.mknod(target, _SPECIAL[entry["target"]] | 0o600)
            case _ if _same_as(entry, tree) is not None:
                os.link(os.fsencode(folder) + b"/" + _bytes(entry["group"]), target, follow_symlinks=False)
                continue
            case _:
                _write(target, _data(entry, blobs) or b"")
        _dress(target, entry, bits)
    for target, entry in reversed(folders):
        _dress(target, entry, bits)


def after(listing: Iterable[JsonObject], changed: Sequence[Mapping[str, str | None]], time_ns: int) -> list[JsonObject]:
    """The tree after some steps: the base's, with what each changed. What came later is of the time `time_ns`."""
    tree = {str(entry["path"]): dict(entry) for entry in listing}
    for step in changed:
        for path, line in step.items():
            if line is None:
                tree.pop(path, None)
                continue
            kind, mode, rest = (*line.split(" ", 2), "")[:3]
            known = tree.get(path, {})
            entry: JsonObject = {
                "path": path,
                "kind": kind,
                "mode": int(mode, 8),
                "mtime_ns": known.get("mtime_ns", time_ns),
            }
            if kind == "file":
                entry["sha256"] = known.get("sha256") if rest == "base" else rest
                entry["group"] = known.get("group")
            elif kind != "directory":
                entry["target"] = rest
            tree[path] = entry
    return list(tree.values())


def _tree(listing: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """The entries by path, in an order in which each can be made.

    Raises:
        ReplayMismatchError: no folder can be so.
    """
    tree: dict[str, JsonObject] = {}
    for entry in sorted(listing, key=lambda one: _bytes(str(one["path"])).split(b"/")):
        path = entry["path"]
        if not isinstance(path, str) or path in tree:
            raise _refused(f"the bundle's tree has {path!r} twice")
        names = _bytes(path).split(b"/")
        if path != ROOT and (any(name in (b"", b".", b"..") for name in names) or b"\0" in _bytes(path)):
            raise _refused(f"the bundle's tree has a path that leads out of it: {path!r}")
        above = path.rpartition("/")[0]
        if above != ROOT and tree.get(above, {}).get("kind") != "directory":
            raise _refused(f"the bundle's tree has {path!r}, which lies in no folder of it")
        if not _usable(entry) or (path == ROOT and entry["kind"] != "directory"):
            raise _refused(f"the bundle's tree has at {path!r} what cannot be made: {entry.get('kind')!r}")
        tree[path] = entry
    return tree


def _usable(entry: JsonObject) -> bool:
    numbers = entry.get("mode"), entry.get("mtime_ns")
    if not all(type(number) is int and 0 <= number < _MOST_NS for number in numbers):
        return False
    match entry.get("kind"):
        case Kind.DIRECTORY:
            return True
        case Kind.LINK:
            return isinstance(entry.get("target"), str) and bool(entry["target"]) and "\0" not in entry["target"]
        case Kind.OTHER:
            return entry.get("target") in _SPECIAL
        case Kind.FILE:
            return isinstance(entry.get("sha256"), str | None)
        case _:
            return False


def _same_as(entry: JsonObject, tree: Mapping[str, JsonObject]) -> str | None:
    """The path of the file that this one is a further hard link of, made before; None where it is one of its own."""
    first = entry.get("group")
    known = tree.get(first) if isinstance(first, str) and first != entry["path"] else None
    alike = known is not None and all(known.get(name) == entry[name] for name in ("kind", "mode", "sha256"))
    earlier = _bytes(str(first)).split(b"/") < _bytes(entry["path"]).split(b"/")
    return first if alike and earlier else None


def _data(entry: JsonObject, blobs: Mapping[str, bytes]) -> bytes | None:
    return b"" if entry["sha256"] is None else blobs.get(entry["sha256"])


def _write(target: bytes, data: bytes) -> None:
    with open(
        os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        file.write(data)


def _dress(target: bytes, entry: JsonObject, bits: int) -> None:
    os.utime(target, ns=(entry["mtime_ns"],) * 2)
    os.chmod(target, entry["mode"] & bits)


def _refused(why: str) -> ReplayMismatchError:
    return ReplayMismatchError(f"step 0: {why}", step=0)


def _bytes(text: Any) -> bytes:
    return str(text).encode("utf-8", "surrogateescape")
