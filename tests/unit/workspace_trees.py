"""Folders to work on: made from a short description, and read back as plain values that can be compared."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.workspaces.base import Change
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.opening import create


class Link(NamedTuple):
    """A link to be made."""

    target: str


class Program(NamedTuple):
    """A file with its executable bit set."""

    data: bytes


FOLDER = None
"""Stands for an empty folder."""

Shape = Mapping[str, bytes | Link | Program | None]


def grow(root: Path, shape: Shape) -> Path:
    """Make what is described below `root`; folders come with what they hold."""
    root.mkdir(parents=True, exist_ok=True)
    for name, what in shape.items():
        path = root / name
        if what is FOLDER:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, Link):
            path.symlink_to(what.target)
        else:
            path.write_bytes(what.data if isinstance(what, Program) else what)
            path.chmod(0o755 if isinstance(what, Program) else 0o644)
    return root


def picture(root: Path) -> dict[str, object]:
    """All below `root`: content, link text, exact modes and modification times."""
    seen: dict[str, object] = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder) / name
            info = path.lstat()
            if stat.S_ISLNK(info.st_mode):
                content: object = os.readlink(path)
            else:
                content = path.read_bytes() if stat.S_ISREG(info.st_mode) else None
            seen[str(path.relative_to(root))] = (oct(info.st_mode), info.st_uid, info.st_mtime_ns, content)
    return seen


def gist(root: Path) -> dict[str, object]:
    """What a review brings over: kinds, content, link text and the executable bit."""
    seen: dict[str, object] = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder) / name
            info = path.lstat()
            key = str(path.relative_to(root))
            if stat.S_ISLNK(info.st_mode):
                seen[key] = Link(os.readlink(path))
            elif stat.S_ISREG(info.st_mode):
                data = path.read_bytes()
                seen[key] = Program(data) if info.st_mode & 0o100 else data
            else:
                seen[key] = FOLDER if stat.S_ISDIR(info.st_mode) else stat.filemode(info.st_mode)
    return seen


def started(tmp_path: Path, shape: Shape, **options: object) -> CopyWorkspace:
    """A prepared copy of a new folder `tmp_path/host`."""
    workspace = create("copy", grow(tmp_path / "host", shape), tmp_path / "state", **options)  # type: ignore[arg-type]
    workspace.prepare()
    assert isinstance(workspace, CopyWorkspace)
    return workspace


def changed(tmp_path: Path, before: Shape, after: Shape) -> CopyWorkspace:
    """A copy with `after` written over `before`, and reviewed."""
    workspace = started(tmp_path, before)
    grow(workspace.source, after)
    workspace.changes()
    return workspace


def kinds(changes: tuple[Change, ...]) -> dict[str, str]:
    return {change.path: change.kind for change in changes}
