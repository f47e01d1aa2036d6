"""Finishes applies that were killed: the person had chosen, and a folder half changed is what nobody chose."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.errors import ConfigError, SandboxAgentError
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.record import APPLYING_NAME, give_back_mounts


async def settle_interrupted() -> tuple[str, ...]:
    """Finish the interrupted apply of every session that nobody uses; a line for each, also where that fails."""
    lines = []
    for path in sorted(sessions_dir().glob(f"*/{APPLYING_NAME}")):
        line = await anyio.to_thread.run_sync(partial(_settle, path.parent))
        if line is not None:
            lines.append(line)
    return tuple(lines)


def _settle(folder: Path) -> str | None:
    try:
        lock = SessionLock(folder)
    except ConfigError:
        return None  # somebody is at it
    try:
        give_back_mounts(folder)  # what a command that was killed has left
        outcome = reopen(folder, view=viewer(folder.name)).settle()
    except (SandboxAgentError, OSError) as error:
        how = f"`sandbox-agent sessions rm {folder.name}` gives it up"
        return f"an apply of session {folder.name} was interrupted and cannot be finished ({error}); {how}"
    finally:
        lock.release()
    if outcome is None:
        return None
    done = f"an interrupted apply of session {folder.name} was finished: {len(outcome.applied)} in your folder"
    rest = f", not applied: {', '.join(sorted(outcome.conflicts))}" if outcome.conflicts else ""
    return done + rest
