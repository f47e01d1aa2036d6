"""A fork: a new session that begins with the tree and the conversation that another one had at a step.

Nothing of the folder is copied here, and no container starts: the fork is a record, the tree it is to begin with, and a
share in the contents of that. Its workspace is made when it is gone on with, as for any new run.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox_agent import __version__
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.past import EVENTS_FILE, conversation_entries, find_session, new_session_id
from sandbox_agent.errors import ConfigError, WorkspaceError
from sandbox_agent.events import (
    AssistantMessage,
    CallDiscarded,
    ConversationCleared,
    ConversationCompacted,
    Event,
    JobFinished,
    JobStarted,
    PermissionDecided,
    RequestStarted,
    ResultsTrimmed,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.tape import Tape, TapeWriter, read_tape
from sandbox_agent.workspaces.record import RECORD_NAME, Record
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Step, Steps

FORK_FILE = "fork.json"
"""In a fork's state folder: the workspace that it is to get."""

CONVERSATION = (
    UserMessage,
    AssistantMessage,
    ToolResultsMessage,
    ConversationCleared,
    ResultsTrimmed,
    ConversationCompacted,
    RequestStarted,
    PermissionDecided,
    ToolStarted,
    ToolFinished,
    CallDiscarded,
    JobStarted,
    JobFinished,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a fork's workspace is made of: as that of the session it comes from."""

    mode: str
    host: Path
    masks: tuple[str, ...]
    in_volume: bool = False


@dataclass(frozen=True, slots=True)
class Forked:
    """The new session, on the folder `host`."""

    session_id: str
    host: Path


def session_folder(wanted: str) -> Path:
    """The state folder of a session that keeps a workspace: an ID, or "last" for the newest session.

    Raises:
        ConfigError: there is no such session.
        WorkspaceError: its workspace is gone, and its steps with it, or it is a fork that has none yet.
    """
    session_id = find_session(sessions_dir(), wanted)
    folder = sessions_dir() / session_id
    if not (folder / RECORD_NAME).exists() and fork_origin(folder) is not None:
        raise WorkspaceError(
            f"session {session_id} is a fork that did not go on yet, so it has no steps of its own; "
            f"go on with it (sandbox-agent run --resume {session_id} TASK), or fork what it comes from"
        )
    if not (folder / RECORD_NAME).exists():
        raise WorkspaceError(
            f"session {session_id} keeps no workspace: all was applied, or it was discarded; its steps went with it"
        )
    return folder


def fork(wanted: str, number: int) -> Forked:
    """Make a session that begins where another one was at a step.

    Raises:
        ConfigError: there is no such session, or it works on the folder itself.
        WorkspaceError: its workspace is gone, or there is no such step, or a content of it was not kept.
        OSError: the system refused.
    """
    folder = session_folder(wanted)
    record = Record.load(folder)
    if record.mode == "bind":
        raise ConfigError("a session of mode bind works on the folder itself: there is no second one to fork into")
    steps = Steps(folder / CHECKPOINTS_NAME)
    step = steps.header(number)
    if step.workspace != record.token:
        raise WorkspaceError(f"step {number} is of a copy of the folder that was applied or discarded since")
    tape = read_tape(folder / EVENTS_FILE)
    child = sessions_dir() / new_session_id()
    child.mkdir(mode=0o700)
    try:
        steps.share(number, Steps(child / CHECKPOINTS_NAME))
    except (WorkspaceError, OSError):
        shutil.rmtree(child)
        raise
    _save_origin(child, Origin(record.mode, record.host, record.masks, bool(record.volume)))
    _write_record(child, folder.name, step, tape)  # last: only what has a record is a session
    return Forked(child.name, record.host)


def fork_origin(folder: Path) -> Origin | None:
    """What the workspace of a session is to be made of, None if it is no fork.

    Raises:
        WorkspaceError: that cannot be read.
    """
    path = folder / FORK_FILE
    try:
        raw = json.loads(path.read_text())
        host = Path(os.fsdecode(raw["host"].encode("utf-8", "surrogateescape")))
        return Origin(raw["mode"], host, tuple(raw["masks"]), bool(raw["in_volume"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkspaceError(f"{path}: cannot be used ({error}); fork again") from error


def _save_origin(folder: Path, origin: Origin) -> None:
    host = os.fsencode(origin.host).decode("utf-8", "surrogateescape")
    raw = {"mode": origin.mode, "host": host, "masks": list(origin.masks), "in_volume": origin.in_volume}
    with open(os.open(folder / FORK_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(json.dumps(raw) + "\n")


def _write_record(child: Path, parent_id: str, step: Step, tape: Tape) -> None:
    writer = TapeWriter(child / EVENTS_FILE)
    try:
        for event in _events(child.name, parent_id, step, tape):
            writer.append(event)
        writer.sync()
    finally:
        writer.close()


def _events(child_id: str, parent_id: str, step: Step, tape: Tape) -> list[Event]:
    started = [
        entry.event
        for entry in tape.entries
        if isinstance(entry.event, SessionStarted) and (entry.seq <= step.after_seq or entry.seq == 0)
    ]
    first = replace(
        started[-1],
        session_id=child_id,
        version=__version__,
        resumed_from=None,
        forked_from=parent_id,
        forked_step=step.number,
    )
    said = conversation_entries(entry for entry in tape.entries if entry.seq <= step.after_seq)
    return [first, *(entry.event for entry in said if isinstance(entry.event, CONVERSATION))]
