"""What the repositories in the person's folder pointed to when a session began, read as data: no git runs there.

It is what commits made inside are told from, so it is written down at the start and not asked for afterwards.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.record import REFS_NAME
from sandbox_agent.workspaces.tree import Tree

OBJECT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_POINTER = "ref: "
_LOOSE_BYTES = 4096
_PACKED_BYTES = 64 * 1024 * 1024

Refs = dict[str, dict[str, str]]


def note_refs(host: Path, manifest: Manifest, state_dir: Path) -> None:
    """Write down where everything points that the manifest of a new session has.

    Raises:
        OSError: the folder is gone, or the state folder cannot be written.
    """
    with Tree(host) as tree:
        refs = read_refs(tree, manifest)
    part = state_dir / f"{REFS_NAME}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(json.dumps(refs))
    part.replace(state_dir / REFS_NAME)


def noted_refs(state_dir: Path) -> Refs:
    """What `note_refs` wrote; nothing for a session that never began.

    Raises:
        WorkspaceError: it cannot be read.
    """
    path = state_dir / REFS_NAME
    try:
        raw = json.loads(path.read_text())
        return {str(folder): {str(name): str(sha) for name, sha in refs.items()} for folder, refs in raw.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise WorkspaceError(f"{path}: cannot be used ({error})") from error


def read_refs(tree: Tree, manifest: Manifest) -> Refs:
    """The refs of every repository that a manifest has, nested ones and submodules too."""
    entries = manifest.entries
    tops = {path.rpartition("/")[0] for path, entry in entries.items() if path.rpartition("/")[2] == "objects"}
    found: Refs = {}
    for top in sorted(tops):
        prefix = top + "/" if top else ""
        if prefix + "HEAD" not in entries:
            continue
        refs = _packed(_read(tree, f"{prefix}packed-refs", _PACKED_BYTES))
        for path, entry in entries.items():
            if path.startswith(f"{prefix}refs/") and entry.kind is Kind.FILE:
                sha = _read(tree, path, _LOOSE_BYTES).strip()
                if OBJECT.match(sha):
                    refs[path.removeprefix(prefix)] = sha
        head = _read(tree, f"{prefix}HEAD", _LOOSE_BYTES).strip()
        pointed = refs.get(head.removeprefix(_POINTER)) if head.startswith(_POINTER) else head
        if pointed and OBJECT.match(pointed):
            refs["HEAD"] = pointed
        found[top] = refs
    return found


def _packed(text: str) -> dict[str, str]:
    rows = (line.split(" ", 1) for line in text.split("\n") if " " in line)
    return {name: sha for sha, name in rows if OBJECT.match(sha)}


def _read(tree: Tree, path: str, limit_bytes: int) -> str:
    try:
        with tree.at(path) as place:
            return place.read_bytes(limit_bytes).decode("utf-8", "surrogateescape")
    except OSError:
        return ""  # missing, or no regular file: it points nowhere


def changed_refs(start: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Refs that are new or point elsewhere."""
    return {name: sha for name, sha in now.items() if start.get(name) != sha}
