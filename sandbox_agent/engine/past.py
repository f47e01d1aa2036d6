"""Earlier sessions: finding one, and turning its record back into a conversation that the model takes."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent.engine import drifting, history
from sandbox_agent.engine.jobs_left import JobsLeft, jobs_left
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, RecordError
from sandbox_agent.events import (
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    CheckpointTaken,
    ConversationRewound,
    Event,
    ModeChanged,
    RequestStarted,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
)
from sandbox_agent.tape import Entry, Tape, read_tape
from sandbox_agent.types import JsonObject, ToolResult

EVENTS_FILE = "events.jsonl"
_ID = re.compile(r"[a-z0-9]{16,64}\Z")


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier session.

    `missing` are the results that the last turn of an agent lacks, one message an agent; `warning` says what was
    repaired, or None. `last_step` is the last checkpoint that it tells of, -1 if there is none; `drift_told` see
    `Session`; `workspace` is what it worked on last. `agents` are its sub-agents, `conversations` what each agent has
    said. `planned`: the model was in plan mode at its end. `jobs` is what it had running in the background.
    """

    session_id: str
    messages: list[JsonObject]
    missing: tuple[ToolResultsMessage, ...]
    warning: str | None
    last_step: int = -1
    drift_told: dict[str, str] = field(default_factory=dict)
    workspace: str = ""
    agents: tuple[AgentStarted, ...] = ()
    conversations: dict[str, list[JsonObject]] = field(default_factory=dict)
    planned: bool = False
    jobs: JobsLeft = field(default_factory=JobsLeft)

    def moved_to(self, host: Path) -> str | None:
        """What to tell a person whose session goes on in another folder than it knows; None where it is the same."""
        if self.workspace in ("", str(host)):
            return None
        return f"the session worked on {self.workspace} before, and goes on in {host}: -w names the folder"


def new_session_id() -> str:
    """Sorts by time, cannot be guessed, and is a safe file name: 14 digits and 8 hex digits."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime()) + secrets.token_hex(4)


def session_ids(sessions: Path) -> list[str]:
    """All recorded sessions, newest first (IDs begin with their time)."""
    if not sessions.is_dir():
        return []
    return sorted(
        (p.name for p in sessions.iterdir() if _ID.match(p.name) and (p / EVENTS_FILE).exists()), reverse=True
    )


def find_session(sessions: Path, wanted: str) -> str:
    """The session with this ID, or the newest for "last".

    Raises:
        ConfigError: there is no such session.
    """
    ids = session_ids(sessions)
    session_id = ids[0] if wanted == "last" and ids else wanted
    if session_id not in ids:
        raise ConfigError(f"there is no session {wanted!r}; `sandbox-agent sessions list` shows those there are")
    return session_id


def folder_of(sessions: Path, wanted: str) -> Path:
    """The state folder of the session with this ID, or of the newest for "last"; its record may be gone or unreadable.

    Raises:
        ConfigError: there is no such folder.
    """
    there = sessions.iterdir() if sessions.is_dir() else ()
    names = sorted(p.name for p in there if _ID.match(p.name) and p.is_dir() and not p.is_symlink())
    session_id = names[-1] if wanted == "last" and names else wanted
    if session_id not in names:
        raise ConfigError(f"there is no session {wanted!r}; `sandbox-agent sessions list` shows those there are")
    return sessions / session_id


def first_event(sessions: Path, session_id: str) -> SessionStarted | None:
    """What a session was made of; None if its record holds nothing."""
    for entry in read_tape(sessions / session_id / EVENTS_FILE).entries:
        if isinstance(entry.event, SessionStarted):
            return entry.event
    return None


def load_past(sessions: Path, wanted: str, workspace: Path) -> Past:
    """The session `wanted` (an ID, or "last" for the newest one on this workspace).

    Raises:
        ConfigError: there is no such session, or its record cannot be read.
    """
    session_id = _find(sessions, wanted, workspace)
    tape = read_tape(sessions / session_id / EVENTS_FILE)
    events = [entry.event for entry in conversation_entries(tape.entries)]
    agents = tuple(event for event in events if isinstance(event, AgentStarted))
    parents = {"main": None, **{event.agent_id: event.parent_id for event in agents}}
    missing = tuple(
        ToolResultsMessage(agent_id=agent_id, parent_id=parent, content=content)
        for agent_id, parent in parents.items()
        if (content := _missing_results(events, agent_id))
    )
    events += missing
    said = {agent_id: history.repair(history.fold(events, agent_id=agent_id)) for agent_id in parents}
    completed = sum(len(message.content) for message in missing)
    warning = _warning(tape, completed, sum(one.changes for one in said.values()))
    told = drifting.told_by(entry.event for entry in tape.entries)
    started = [entry.event.workspace for entry in tape.entries if isinstance(entry.event, SessionStarted)]
    worked_on = started[-1] if started else ""
    return Past(
        session_id,
        said["main"].messages,
        missing,
        warning,
        last_step=last_step(tape.entries),
        drift_told=told,
        workspace=worked_on,
        agents=agents,
        conversations={agent_id: one.messages for agent_id, one in said.items()},
        planned=_in_plan_mode(events),
        jobs=jobs_left(tape.entries, events),
    )


def take_up(session: Session, past: Past) -> None:
    """Let a new session go on where an earlier one was, and make the record whole, so that the next resume finds it
    so."""
    session.journal.conversations |= past.conversations
    session.drift_told = past.drift_told
    for message in past.missing:
        session.tape.append(message)  # the conversations have them already
    past.jobs.settle(session.tape, session.queue)


def _in_plan_mode(events: Iterable[Event]) -> bool:
    """Whether the model had begun to plan, and nothing ended that."""
    changes = [event for event in events if isinstance(event, ModeChanged)]
    return bool(changes) and changes[-1].by == "model"


def conversation_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The entries of a record that the conversation still goes by: without what it was rewound past."""
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry.event, ConversationRewound):
            to_seq = entry.event.to_seq
            kept = [earlier for earlier in kept if earlier.seq <= to_seq]
        else:
            kept.append(entry)
    return kept


def last_step(entries: Iterable[Entry]) -> int:
    """The last checkpoint that a record tells of, -1 if there is none."""
    return max((entry.event.step for entry in entries if isinstance(entry.event, CheckpointTaken)), default=-1)


def _find(sessions: Path, wanted: str, workspace: Path) -> str:
    if wanted != "last":
        if _ID.match(wanted) and (sessions / wanted / EVENTS_FILE).exists():
            return wanted
        raise ConfigError(f"there is no session {wanted!r}; `sandbox-agent sessions list` shows those there are")
    return newest_on(sessions, workspace)


def newest_on(sessions: Path, workspace: Path) -> str:
    """The newest session on a folder; one whose record cannot be read may be of another.

    Raises:
        ConfigError: there is none.
    """
    for session_id in session_ids(sessions):
        try:
            started = first_event(sessions, session_id)
        except RecordError:
            continue  # it may be of another folder; whoever means it can name it
        if started is not None and started.workspace == str(workspace):
            return session_id
    raise ConfigError(f"there is no earlier session on {workspace}")


def _missing_results(events: Sequence[Event], agent_id: str) -> tuple[JsonObject, ...]:
    """Results for a last turn that was cut: those recorded already, "interrupted" for the others."""
    started = (event for event in events if isinstance(event, AgentStarted) and event.parent_id == agent_id)
    at_work = {event.call_id: event.agent_id for event in started}
    events = [event for event in events if event.agent_id == agent_id]
    finished = _finished(events)
    for event in reversed(events):
        if isinstance(event, ToolResultsMessage):
            return ()
        if isinstance(event, AssistantMessage):
            calls = [str(block.get("id")) for block in event.content if block.get("type") == "tool_use"]
            return tuple(history.result_block(call, _result(finished.get(call), at_work.get(call))) for call in calls)
    return ()


def _finished(events: Iterable[Event]) -> dict[str, ToolFinished]:
    """The calls of the last request that ended and count; some may have run before its answer was whole."""
    finished: dict[str, ToolFinished] = {}
    for event in events:
        match event:
            case RequestStarted():
                finished.clear()  # what belongs to no answer then never will, also where a model gives an id again
            case ToolFinished(call_id=call_id):
                finished[call_id] = event
            case CallDiscarded(call_id=call_id):
                finished.pop(call_id, None)
            case _:
                pass
    return finished


def _result(event: ToolFinished | None, sub_agent: str | None) -> ToolResult:
    if event is None:
        return history.interrupted(sub_agent)
    return ToolResult(event.content, is_error=event.is_error)


def _warning(tape: Tape, missing: int, changes: int) -> str | None:
    parts = [
        f"{tape.damaged_lines} damaged line(s) left out" if tape.damaged_lines else "",
        f"{missing} result(s) of the last turn completed" if missing else "",
        f"{changes} place(s) of the conversation repaired" if changes else "",
        "" if tape.chain_ok or tape.damaged_lines else "its hash chain is broken: the record was changed",
    ]
    said = "; ".join(part for part in parts if part)
    return f"the record of the session was not whole: {said}" if said else None
