"""Removes what a session keeps of its workspace, with the engine's help where only root can."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.workspaces.record import LeftToRootError, remove_remains


async def discard(state_dir: Path, endpoint: Endpoint, *, image: str = "base") -> None:
    """Remove every trace of the workspace that a session's state folder keeps; other files there stay.

    Args:
        state_dir: the session's folder, as given to `workspaces.opening.create`.
        endpoint: used only where an ordinary user has to remove what the kernel made as root.
        image: any image with `sh` and `rm`.

    Raises:
        OSError: the system refused.
        SandboxUnavailableError, SandboxStartError: the engine's help was needed and not to be had.
    """
    try:
        await anyio.to_thread.run_sync(remove_remains, state_dir)
    except LeftToRootError as left:
        cleaner = await anyio.to_thread.run_sync(registry.load, "sandboxes", "cleaner")
        await cleaner.empty_folder(endpoint, left.folder, session_id=state_dir.name, image=image)
        await anyio.to_thread.run_sync(remove_remains, state_dir)
