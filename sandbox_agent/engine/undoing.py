"""Undo for a session that no process has open: a container on its kept workspace, the step brought back, and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.forking import session_folder
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.open import reachable_engine
from sandbox_agent.engine.past import EVENTS_FILE, Past, load_past
from sandbox_agent.engine.restoring import Reached
from sandbox_agent.engine.standing import standing
from sandbox_agent.events import ConversationRewound, ToolResultsMessage, UserMessage
from sandbox_agent.prompts import prompt
from sandbox_agent.tape import TapeWriter
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.stored import end_at


@dataclass(frozen=True, slots=True)
class Undone:
    """The session, and what the undo came to."""

    session_id: str
    reached: Reached


async def undo_session(wanted: str, to: int | None, *, rewind: bool, tell: Callable[[str], None]) -> Undone:
    """Bring the workspace of a session back to a step.

    Args:
        wanted: an ID, or "last" for the newest session.
        to: the step; None is the one before the last.
        rewind: the conversation goes back to that step, too; otherwise the model gets a note when it goes on.
        tell: takes lines for the person.

    Raises:
        ConfigError: there is no such session, or a process has it open.
        WorkspaceError: its workspace is gone, or see `Checkpoints.undo`.
        SandboxError: the container could not be started, or ended.
    """
    folder = session_folder(wanted)
    lock = SessionLock(folder)
    try:
        past = load_past(sessions_dir(), folder.name, folder)
        endpoint = await anyio.to_thread.run_sync(reachable_engine)
        view = viewer(folder.name, endpoint)
        workspace = await anyio.to_thread.run_sync(partial(reopen, folder, view=view))
        tape = TapeWriter(folder / EVENTS_FILE)
        try:
            async with standing(folder, workspace, endpoint, tape, past, tell) as checkpoints:
                reached = await checkpoints.undo(to, rewind=rewind)
            _record(tape, past, reached, rewind=rewind)
            tape.sync()
        finally:
            tape.close()
        await anyio.to_thread.run_sync(end_at, folder, reached.step.number)
    finally:
        lock.release()
    return Undone(folder.name, reached)


def _record(tape: TapeWriter, past: Past, reached: Reached, *, rewind: bool) -> None:
    """Say in the session's record what became of the conversation."""
    if rewind:
        tape.append(ConversationRewound(to_seq=reached.target.after_seq, step=reached.target.number))
        return
    if past.missing:
        tape.append(ToolResultsMessage(content=past.missing))  # before the note: results come first
    if past.messages:
        text = prompt("engine/undone").format(step=reached.target.number, count=reached.changed)
        tape.append(UserMessage(content=({"type": "text", "text": text},)))
