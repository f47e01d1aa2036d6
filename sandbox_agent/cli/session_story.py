"""A session from its record, told to people as Markdown or to programs as JSON."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

from sandbox_agent.cli import spent, steps
from sandbox_agent.cli.session_rows import row_of
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.past import EVENTS_FILE, find_session
from sandbox_agent.events import (
    AssistantMessage,
    ChangesApplied,
    CheckFinished,
    Notice,
    PermissionDecided,
    ProjectInstructions,
    ReviewReady,
    RunFinished,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    UserMessage,
    encode,
)
from sandbox_agent.frontends.outcome import plain_text
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.tape import Entry, Tape, read_tape
from sandbox_agent.types import JsonObject

FORM = "sandbox-agent session"
FORM_VERSION = 1

RESULT_LINES = 60
"""Of a tool's result, in Markdown; JSON has all that the record has."""

E = TypeVar("E")
_FENCE = re.compile(r"`{3,}")


def told(wanted: str, form: str) -> str:
    """The whole session: `form` is "markdown" or "json".

    Raises:
        ConfigError: there is no such session.
        RecordError: its record cannot be read.
    """
    sessions = sessions_dir()
    session_id = find_session(sessions, wanted)
    tape = read_tape(sessions / session_id / EVENTS_FILE)
    if form == "json":
        return json.dumps(as_json(session_id, tape), indent=1, default=str) + "\n"
    return "\n".join(markdown(session_id, tape.entries)) + "\n"


def as_json(session_id: str, tape: Tape) -> JsonObject:
    """Everything, the record's own entries with it; `head` and `prev` let somebody compare it with the record."""
    review = _last(tape.entries, ReviewReady)
    applied = _last(tape.entries, ChangesApplied)
    checks = [entry.event for entry in tape.entries if isinstance(entry.event, CheckFinished)]
    return {
        "format": FORM,
        "format_version": FORM_VERSION,
        "session": asdict(row_of(session_id, tape.entries)),
        "record": {
            "head": tape.head,
            "chain_ok": tape.chain_ok,
            "damaged_lines": tape.damaged_lines,
            "entries": [
                {"seq": entry.seq, "time_unix_s": entry.time_unix_s, "prev": entry.prev} | encode(entry.event)
                for entry in tape.entries
            ],
        },
        "steps": [row.as_json() for row in steps.rows(tape.entries)],
        "runs": [asdict(one) for one in spent.runs(tape.entries)],
        "review": list(review.changes) if review is not None else None,
        "applied": list(applied.applied) if applied is not None else [],
        "checks": [check.as_json() for check in checks],
    }


def markdown(session_id: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Line by line, harmless on a terminal."""
    row = row_of(session_id, entries)
    yield f"# Session {session_id}"
    yield ""
    yield f"- folder: `{sanitise(row.workspace)}`"
    yield f"- model: {sanitise(row.model)}"
    yield f"- status: {row.status}"
    for run in spent.runs(entries):
        yield f"- run: {run.line()}"
    yield ""
    yield "## What was said and done"
    for entry in entries:
        yield from _told(entry)
    found = steps.rows(entries)
    if found:
        yield from ("", "## Steps", "")
    for step in found:
        yield f"- step {step.event.step}: {sanitise(step.cause)}"
        for change in step.event.changed:
            yield f"  - {sanitise(str(change.get('kind')))} `{sanitise(str(change.get('path')))}`"
        if step.event.changed_count > len(step.event.changed):
            yield f"  - and {step.event.changed_count - len(step.event.changed):,} more"
    yield from _review(entries)


def _review(entries: Sequence[Entry]) -> Iterator[str]:
    review, applied = _last(entries, ReviewReady), _last(entries, ChangesApplied)
    if review is None:
        return
    yield from ("", "## Review", "")
    there = set(applied.applied) if applied is not None else set()
    if not review.changes:
        yield "Nothing was changed."
    for change in review.changes:
        path = str(change["path"])
        became = "applied" if path in there else "not applied"
        yield f"### `{sanitise(path)}` ({sanitise(str(change['kind']))}, {became})"
        yield ""
        if change.get("danger"):
            yield f"Look at it: {sanitise(str(change['danger']))}"
            yield ""
        if change.get("diff"):
            yield from _fenced(str(change["diff"]), "diff")


def _told(entry: Entry) -> Iterator[str]:
    event = entry.event
    who = "" if event.agent_id == "main" else f"[{sanitise(event.agent_id)}] "
    match event:
        case SessionStarted():
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time_unix_s))
            yield from ("", f"*{when}: image {sanitise(event.image)}, policy {sanitise(event.policy)}, {event.mode}*")
        case ProjectInstructions():
            files = ", ".join(sanitise(str(one.get("path"))) for one in event.files)
            yield from ("", f"*what the folder says to agents was given: {files}*")
        case UserMessage():
            yield from ("", f"**{who}task:**", "", _text(plain_text(event.content)))
        case AssistantMessage():
            text = "\n".join(str(one.get("text", "")) for one in event.content if one.get("type") == "text")
            if text.strip():
                yield from ("", f"**{who}agent:**", "", _text(text))
        case PermissionDecided(verdict="deny"):
            yield from ("", f"{who}denied: {sanitise(event.tool)}: {sanitise(event.reason)}")
        case ToolStarted():
            yield from ("", f"{who}{sanitise(event.tool)}: `{sanitise(event.summary).replace('`', chr(39))}`")
        case ToolFinished():
            yield from _result(event)
        case CheckFinished():
            yield from ("", f"check `{sanitise(event.command)}`: {sanitise(event.outcome)}")
            yield from _fenced(event.output, "")
        case Notice(level="warning"):
            yield from ("", f"*{sanitise(event.text)}*")
        case RunFinished(agent_id="main"):
            yield from ("", f"*{event.status.replace('_', ' ')}{': ' + sanitise(event.error) if event.error else ''}*")
        case _:
            pass


def _result(event: ToolFinished) -> Iterator[str]:
    lines = plain_text(event.content).rstrip().splitlines()
    if len(lines) > RESULT_LINES:
        lines = [*lines[:RESULT_LINES], f"... {len(lines) - RESULT_LINES:,} more lines"]
    yield from _fenced("\n".join(lines), "")


def _fenced(text: str, kind: str) -> Iterator[str]:
    """A block that nothing in the text can end."""
    if not text.strip():
        return
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    yield from (f"{fence}{kind}", _text(text.rstrip("\n")), fence)


def _text(text: str) -> str:
    return sanitise(text, newlines=True, tabs=True)


def _last(entries: Sequence[Entry], kind: type[E]) -> E | None:
    return next((entry.event for entry in reversed(entries) if isinstance(entry.event, kind)), None)
