"""Makes a session's workspace, or takes up one that another process left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import View, Workspace
from sandbox_agent.workspaces.bind import BindWorkspace
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.folder import access_notes, owner_of, repository_notes, resolve
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.overlay import OverlayWorkspace
from sandbox_agent.workspaces.record import Record
from sandbox_agent.workspaces.volume import VolumeWorkspace


def create(
    mode: str,
    host: Path,
    state_dir: Path,
    *,
    masks: Sequence[str] = (),
    view: View | None = None,
    volume: str = "",
    engine: str = "",
    disk_bytes: int = 0,
    own_disk: bool = False,
) -> Workspace:
    """Check a folder and make its workspace; `prepare` fills it.

    Args:
        mode: "overlay", "copy" or "bind".
        host: the person's folder.
        state_dir: a folder of our own for this session only, outside `host`; made 0700 where it is missing.
        masks: gitignore patterns of what the session must not see.
        volume: for "copy": the volume that is to hold it, where the engine sees no folder of ours.
        engine: that engine's address.
        disk_bytes: what the session may take of the disk, 0 if nothing is said; `sandbox.disk` of the policy.
        own_disk: it gets a disk of that size where this machine can have one. See `disk`.
        view: how an ordinary user looks at an overlay; without it, `changes` and `apply` of one are for root only.

    Raises:
        WorkspaceError: the folder is refused (see `folder.resolve`), the mode is unknown or impossible, a mask is
            malformed, or `state_dir` holds a workspace already.
    """
    patterns = Masks(masks)
    real = resolve(host, state_dir)
    if mode not in ("overlay", "copy", "bind"):
        raise WorkspaceError(f"workspace mode {mode}: must be overlay, copy or bind")
    if mode == "bind" and os.lstat(real).st_uid == 0:
        raise WorkspaceError(
            f"{host}: belongs to root, and tools never run as root; use the workspace mode overlay or copy"
        )
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(state_dir, 0o700)
    record = Record.new(mode, real, owner_of(real), patterns.patterns, volume, engine, disk_bytes)
    notes = (*access_notes(real), *repository_notes(real))
    if mode == "overlay":
        return OverlayWorkspace.make(record, state_dir.resolve(), notes, view, own_disk=own_disk)
    if mode == "bind":
        return BindWorkspace.make(record, state_dir.resolve(), notes)
    if volume:
        return VolumeWorkspace.make(record, state_dir.resolve(), notes)
    return CopyWorkspace.make(record, state_dir.resolve(), notes, own_disk=own_disk)


def reopen(state_dir: Path, *, view: View | None = None) -> Workspace:
    """The workspace that `state_dir` keeps. Its changes and masks are as they were left; `prepare` does nothing again.

    Raises:
        WorkspaceError: there is none, or it cannot be read.
    """
    record = Record.load(state_dir)
    if record.mode == "overlay":
        return OverlayWorkspace(record, state_dir.resolve(), view=view)
    if record.mode == "bind":
        return BindWorkspace(record, state_dir.resolve())
    if record.volume:
        return VolumeWorkspace(record, state_dir.resolve())
    return CopyWorkspace(record, state_dir.resolve())
