"""Sessions whose changes were kept: finding one, looking at its copy, and bringing changes to the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import discard, viewer
from sandbox_agent.engine.past import EVENTS_FILE, session_ids
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import ChangesApplied
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import ApplyOutcome, Workspace
from sandbox_agent.workspaces.opening import reopen


@dataclass(frozen=True, slots=True)
class Kept:
    """A session's copy as it is now; `changes` are entries as in `ReviewReady`."""

    session_id: str
    folder: Path
    workspace: Workspace
    changes: tuple[JsonObject, ...]


def open_kept(wanted: str) -> Kept:
    """The kept changes of the session `wanted`, an ID or "last" for the newest session.

    Raises:
        ConfigError: there is no such session.
        WorkspaceError: it keeps no copy, or the copy or the folder cannot be read.
    """
    sessions = sessions_dir()
    ids = session_ids(sessions)
    session_id = ids[0] if wanted == "last" and ids else wanted
    if session_id not in ids:
        raise ConfigError(f"there is no session {wanted!r}; `sandbox-agent sessions list` shows those there are")
    workspace = reopen(sessions / session_id, view=viewer(session_id))
    changes = tuple(change.as_json() for change in workspace.changes())
    return Kept(session_id, sessions / session_id, workspace, changes)


def apply_kept(kept: Kept, paths: tuple[str, ...] | None) -> ApplyOutcome:
    """Apply, add it to the session's record, and remove the copy when nothing in it is left to apply.

    Raises:
        WorkspaceError: the folder is gone, or a path is not among the changes.
    """
    outcome = kept.workspace.apply(paths)
    tape = TapeWriter(kept.folder / EVENTS_FILE)
    try:
        tape.append(
            ChangesApplied(
                applied=tuple(outcome.applied), unapplied=tuple(outcome.unapplied), conflicts=dict(outcome.conflicts)
            )
        )
        tape.sync()
    finally:
        tape.close()
    if not outcome.unapplied:
        anyio.run(discard, kept.folder)
    return outcome
