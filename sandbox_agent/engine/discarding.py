"""Looks at, and removes, what a session keeps of its workspace, with the engine's help where only root can."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.errors import SandboxUnavailableError, WorkspaceError
from sandbox_agent.sandboxes.endpoint import Endpoint, resolve_endpoint
from sandbox_agent.types import OverlayMount
from sandbox_agent.workspaces.base import Owner, View
from sandbox_agent.workspaces.record import LeftToRootError, Record, remove_remains


def viewer(session_id: str, endpoint: Endpoint | None = None) -> View:
    """How an ordinary user looks at a session's overlay; see `View`. Nothing happens before it is used."""

    def view(mount: OverlayMount, owner: Owner) -> int:
        module = registry.load("sandboxes", "view")
        fd: int = module.open_view(_engine(endpoint), session_id, mount, owner.uid, owner.gid)
        return fd

    return view


async def discard(
    state_dir: Path, endpoint: Endpoint | None = None, *, image: str = "base", leave_volume: bool = False
) -> None:
    """Remove every trace of the workspace that a session's state folder keeps; other files there stay.

    Args:
        state_dir: the session's folder, as given to `workspaces.opening.create`.
        endpoint: used only for a volume, and where an ordinary user has to remove what the kernel made as root. None
            is the user's own engine.
        image: any image with `sh` and `rm`.
        leave_volume: forget a copy that an engine holds; it stays there.

    Raises:
        OSError: the system refused.
        SandboxUnavailableError, SandboxStartError: the engine's help was needed and not to be had.
    """
    # First, for without the record nobody would know of it.
    if not leave_volume:
        await _remove_volume(state_dir, endpoint)
    try:
        await anyio.to_thread.run_sync(remove_remains, state_dir)
    except LeftToRootError as left:
        cleaner = await anyio.to_thread.run_sync(registry.load, "sandboxes", "cleaner")
        await cleaner.empty_folder(_engine(endpoint), left.folder, session_id=state_dir.name, image=image)
        await anyio.to_thread.run_sync(remove_remains, state_dir)


async def _remove_volume(state_dir: Path, endpoint: Endpoint | None) -> None:
    try:
        record = await anyio.to_thread.run_sync(Record.load, state_dir)
    except WorkspaceError:
        return  # there is none, or none that names a volume
    if not record.volume:
        return
    module, asked = await anyio.to_thread.run_sync(registry.load, "sandboxes", "reap"), _engine(endpoint)
    removed = await module.remove_all(asked, state_dir.name)
    if f"volume {record.volume}" not in removed and record.engine not in ("", asked.url):
        raise SandboxUnavailableError(
            f"the copy of session {state_dir.name} is in the volume {record.volume} of the engine at {record.engine}, "
            f"and this is {asked}: set DOCKER_HOST={record.engine}"
        )


def _engine(endpoint: Endpoint | None) -> Endpoint:
    return endpoint if endpoint is not None else resolve_endpoint(os.environ)
