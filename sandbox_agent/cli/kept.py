"""Sessions whose changes were kept: finding one, looking at its copy, and bringing changes to the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import click

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import discard, viewer
from sandbox_agent.engine.drifting import together
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.past import EVENTS_FILE, find_session, session_ids
from sandbox_agent.engine.secrecy import redactor_of
from sandbox_agent.engine.standing import complete
from sandbox_agent.events import ChangesApplied
from sandbox_agent.frontends.review import Choice
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import ApplyOutcome, Drift, Workspace
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.record import give_back_mounts
from sandbox_agent.workspaces.volume import VolumeWorkspace


@dataclass(frozen=True, slots=True)
class Kept:
    """A session's copy as it is now; `changes` are entries as in `ReviewReady`, `drift` is what others changed in the
    folder since the session began.

    `settled` is what became of an apply that had been interrupted and was finished now, None if there was none.
    """

    session_id: str
    folder: Path
    workspace: Workspace
    changes: tuple[JsonObject, ...]
    drift: tuple[Drift, ...] = ()
    settled: ApplyOutcome | None = None


def recorded_ids() -> list[str]:
    """All sessions there are, newest first."""
    return session_ids(sessions_dir())


@contextmanager
def open_kept(wanted: str, *, settle: bool = False) -> Iterator[Kept]:
    """The kept changes of a session, which nobody else can use meanwhile.

    Args:
        wanted: an ID, or "last" for the newest session.
        settle: finish an apply that was interrupted first.

    Raises:
        ConfigError: there is no such session, or it is still running.
        WorkspaceError: it keeps no copy, or the copy or the folder cannot be read.
        SandboxError: the copy is in a volume of an engine, the session was killed, and no container can be had.
    """
    session_id = find_session(sessions_dir(), wanted)
    folder = sessions_dir() / session_id
    lock = SessionLock(folder)
    try:
        give_back_mounts(folder)  # what a command that was killed has left
        workspace = reopen(folder, view=viewer(session_id))
        if isinstance(workspace, VolumeWorkspace) and workspace.interrupted:
            click.echo("The session was interrupted: a container looks at what it changed.", err=True)
            anyio.run(complete, folder, workspace, resolve_endpoint(os.environ), partial(click.echo, err=True))
        settled = workspace.settle() if settle else None
        if settled is not None:
            _record(folder, told(settled))
        changes = tuple(change.as_json() for change in workspace.changes())
        redactor = redactor_of(folder, workspace.host)
        changes = tuple(change | {"diff": redactor.text(change["diff"] or "") or None} for change in changes)
        drift = tuple(together(workspace.drift()))
        yield Kept(session_id, folder, workspace, changes, drift, settled)
    finally:
        lock.release()


def apply_kept(kept: Kept, choice: Choice) -> ApplyOutcome:
    """Apply, add it to the session's record, and remove the copy when nothing in it is left to apply.

    Raises:
        WorkspaceError: the folder is gone, or a path is not among the changes.
    """
    outcome = kept.workspace.apply(choice.paths, choice.hunks)
    _record(kept.folder, told(outcome))
    if not outcome.unapplied and not kept.workspace.commits:
        anyio.run(discard, kept.folder)
    return outcome


def told(outcome: ApplyOutcome) -> ChangesApplied:
    """The event of an apply."""
    return ChangesApplied(
        applied=tuple(outcome.applied),
        unapplied=tuple(outcome.unapplied),
        conflicts=dict(outcome.conflicts),
        partial=tuple(outcome.partial),
        withheld=dict(outcome.withheld),
    )


def _record(folder: Path, event: ChangesApplied) -> None:
    tape = TapeWriter(folder / EVENTS_FILE)
    try:
        tape.append(event)
        tape.sync()
    finally:
        tape.close()
