"""Removes what sessions of dead processes left in the state folder: mounts, layers, copies. Work that is nowhere else
stays. What they left at the engine is removed by `sandboxes.reap`.
"""

from __future__ import annotations

from dataclasses import replace

import anyio.to_thread

from sandbox_agent.config import sessions_dir, state_dir
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.lock import in_use
from sandbox_agent.engine.placement import remove_dead_trials
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.workspaces.reap import Reaped, reap_sessions


async def reap_workspaces(endpoint: Endpoint | None = None, *, drop_kept: bool = False) -> Reaped:
    """Look at every session folder that nobody uses.

    Args:
        endpoint: for what an ordinary user cannot remove alone; None is the user's own engine.
        drop_kept: remove kept changes too. The work in them is lost.

    Returns:
        Reaped: `left` is empty; what could not be removed is among `failed`.
    """
    await remove_dead_trials(state_dir(), endpoint)
    found = await anyio.to_thread.run_sync(lambda: reap_sessions(sessions_dir(), in_use, drop_kept=drop_kept))
    removed, failed = list(found.removed), list(found.failed)
    for folder in found.left:
        try:
            await discard(folder, endpoint)
            removed.append(folder.name)
        except (SandboxAgentError, OSError) as error:
            failed.append(f"{folder.name}: {error}")
    return replace(found, removed=tuple(sorted(removed)), failed=tuple(failed), left=())
