"""What a session has changed so far, for a look while it goes on: from its checkpoints. Nothing is applied by it."""

from __future__ import annotations

from dataclasses import dataclass

import anyio.to_thread

from sandbox_agent.engine.session import Session
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import JsonObject


@dataclass(frozen=True, slots=True)
class SoFar:
    """The changes until a step, as in `ReviewReady`."""

    step: int
    changes: tuple[JsonObject, ...]


async def changes_so_far(session: Session, *, resting: bool) -> SoFar:
    """What differs from the folder at the start. Secrets are taken out.

    Args:
        session: whose.
        resting: no call runs, so that there is a last state to look at; otherwise it is that of the last step.

    Raises:
        WorkspaceError: there are no checkpoints, or not yet, or the folder is gone.
        SandboxError: the sandbox ended.
    """
    checkpoints = session.checkpoints
    if checkpoints is None:
        raise WorkspaceError("this session has no checkpoints, so what it changed is only known at its end")
    if not checkpoints.begun:
        await session.sandbox.start()
    await checkpoints.settled()
    if resting:
        await checkpoints.now()
    if checkpoints.current is None:
        raise WorkspaceError("there is no checkpoint of this session, so what it changed is only known at its end")
    step = checkpoints.current.number
    found = await anyio.to_thread.run_sync(session.workspace.changes_at, step)
    redactor = session.secrecy.redactor
    shown = (change.as_json() for change in found)
    return SoFar(step, tuple(change | {"diff": redactor.text(change["diff"] or "") or None} for change in shown))
