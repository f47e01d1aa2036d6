"""Applying in the middle of a session: what the last checkpoint holds goes to the person's folder, and work goes on.

The container is not closed, and nothing that tools can still write is read but what a checkpoint could not keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from sandbox_agent.engine.session import Session
from sandbox_agent.events import ChangesApplied, ReviewReady
from sandbox_agent.workspaces.base import ApplyOutcome, Change
from sandbox_agent.workspaces.stored import end_at, go_on


async def look_so_far(session: Session, *, apply: bool) -> ApplyOutcome | None:
    """Look at what the session changed and, with `apply`, bring it to the folder. No task may be under way.

    Whatever can do harm later, and every link, is withheld with the reason: nobody looks before it would be there.

    Returns:
        None where nothing differs from the folder, or where nobody can tell.

    Raises:
        SandboxError: the sandbox is gone.
        WorkspaceError: the folder is gone.
    """
    checkpoints = session.checkpoints
    if checkpoints is None or session.fault is not None or session.workspace.mode == "bind":
        return None
    step = await checkpoints.now()
    if step is None or not checkpoints.changed:
        return None
    async with session.looking:
        found, outcome = await anyio.to_thread.run_sync(_look, session, checkpoints.steps.folder.parent, step, apply)
    session.unapplied = {*outcome.unapplied, *outcome.conflicts}
    if not found:
        return None
    session.emit(ReviewReady(changes=tuple(one.as_json() for one in found), commits=tuple(session.workspace.commits)))
    if apply:
        session.emit(
            ChangesApplied(
                applied=tuple(outcome.applied),
                unapplied=tuple(outcome.unapplied),
                conflicts=dict(outcome.conflicts),
                partial=tuple(outcome.partial),
                withheld=dict(outcome.withheld),
            )
        )
    return outcome


def _look(session: Session, folder: Path, step: int, apply: bool) -> tuple[Sequence[Change], ApplyOutcome]:
    end_at(folder, step)
    try:
        found = session.workspace.changes()
        withheld = {change.path: change.danger for change in found if change.danger is not None}
        above = {path[:place] for path in withheld for place, char in enumerate(path) if char == "/"}
        # A folder's name stands for all below it.
        chosen = [change.path for change in found if change.path not in withheld and change.path not in above]
        unapplied = tuple(change.path for change in found)
        outcome = session.workspace.apply(chosen) if apply and chosen else ApplyOutcome(unapplied=unapplied)
        return found, replace(outcome, withheld={**withheld, **outcome.withheld} if apply else {})
    finally:
        go_on(folder)
