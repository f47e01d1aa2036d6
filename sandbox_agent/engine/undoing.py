"""Undo: a step brought back, and told. For a session that no process has open, in a container on its kept workspace;
and for one that is open, between its runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine import history
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.forking import session_folder
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.open import reachable_engine
from sandbox_agent.engine.past import EVENTS_FILE, Past, conversation_entries, load_past
from sandbox_agent.engine.restoring import Reached
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.standing import standing
from sandbox_agent.engine.subagents import Desk
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.events import ConversationRewound, UserMessage
from sandbox_agent.prompts import prompt
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.base import Kind
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


async def check_here(session: Session, to: int | None) -> None:
    """Whether there is anything to undo in an open session, before a person is asked about it.

    Raises:
        WorkspaceError: it has no checkpoints, no such step, or none before this one.
    """
    if session.checkpoints is None or session.checkpoints.current is None:
        raise WorkspaceError("this session has no checkpoints")
    await session.checkpoints.settled()
    if to is not None:
        await anyio.to_thread.run_sync(session.checkpoints.reachable, to)
    elif await session.checkpoints.now() is None or not session.checkpoints.changed:
        raise WorkspaceError("nothing was changed so far, so there is nothing to undo")


async def undo_here(session: Session, to: int | None, *, rewind: bool) -> Reached:
    """Bring the workspace of an open session back to a step; none of its agents may be at work. Its jobs are ended.

    What agents know of files counts no longer, and commands start in a folder that is there.

    Args:
        session: whose.
        to: the step; None is the one before the last.
        rewind: the conversation goes back to that step, too; otherwise the model gets a note with the next message,
            and a sub-agent when it goes on.

    Raises:
        WorkspaceError: it has no checkpoints, or see `Checkpoints.undo`.
        SandboxError: the sandbox ended.
    """
    if session.checkpoints is None:
        raise WorkspaceError("this session has no checkpoints")
    await session.jobs.stop_all("an undo ends what runs in the background")
    reached = await session.checkpoints.undo(to, rewind=rewind)
    if rewind:
        session.emit(ConversationRewound(to_seq=reached.target.after_seq, step=reached.target.number))
        tape = await anyio.to_thread.run_sync(read_tape, sessions_dir() / session.id / EVENTS_FILE)
        events = [entry.event for entry in conversation_entries(tape.entries)]
        for agent_id, messages in session.journal.conversations.items():
            messages[:] = history.repair(history.fold(events, agent_id=agent_id)).messages
    elif session.messages:
        session.say(_note(reached))
    team = session.ctx.agents.team if isinstance(session.ctx.agents, Desk) else None
    if team is not None and not rewind:
        team.note(_note(reached))
    for one in (session, *(member.session for member in (team.members.values() if team is not None else ()))):
        _forget(one, session.checkpoints)
    session.sync_soon()
    return reached


def _forget(agent: Session, checkpoints: Checkpoints) -> None:
    """What an agent knew of the workspace counts no longer."""
    agent.window.forget()
    ctx = agent.ctx
    ctx.known_files.clear()
    ctx.failed_edits.clear()
    if ctx.cwd.startswith(WORKSPACE_MOUNT + "/"):
        node = checkpoints.nodes.get(ctx.cwd.removeprefix(WORKSPACE_MOUNT + "/"))
        if node is None or node.kind is not Kind.DIRECTORY:
            ctx.cwd = WORKSPACE_MOUNT


def _note(reached: Reached) -> str:
    return prompt("engine/undone").format(step=reached.target.number, count=reached.changed)


def _record(tape: TapeWriter, past: Past, reached: Reached, *, rewind: bool) -> None:
    """Say in the session's record what became of the conversation."""
    if rewind:
        tape.append(ConversationRewound(to_seq=reached.target.after_seq, step=reached.target.number))
        return
    for message in past.missing:
        tape.append(message)  # before the note: results come first
    if past.messages:
        tape.append(UserMessage(content=({"type": "text", "text": _note(reached)},)))
