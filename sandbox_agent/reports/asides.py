"""One line for what happens beside messages and calls. An event that this module has no words for is told all the same,
by its name and its fields: a report leaves nothing out for being new."""

from __future__ import annotations

import json

from sandbox_agent.events import (
    ChangesApplied,
    CheckpointTaken,
    ConversationCleared,
    ConversationCompacted,
    ConversationRewound,
    EgressDecided,
    Event,
    FolderDrifted,
    HookRan,
    JobFinished,
    LimitReached,
    McpServerChanged,
    ModeChanged,
    ModelChanged,
    ModelRetrying,
    ModelSwitched,
    Notice,
    ResultsTrimmed,
    RunFinished,
    SandboxReady,
    SessionStarted,
    ToolsOffered,
    encode,
)
from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.frontends import words
from sandbox_agent.reports.parts import Aside, Tone
from sandbox_agent.tape import Entry

_KINDS = {
    **dict.fromkeys(("session_started", "run_finished", "mode_changed", "limit_reached"), "session"),
    **dict.fromkeys(("model_retrying", "model_switched", "model_changed"), "model"),
    **dict.fromkeys(("results_trimmed", "conversation_compacted", "conversation_cleared"), "conversation"),
    **dict.fromkeys(("checkpoint_taken", "conversation_rewound"), "step"),
    **dict.fromkeys(("egress_decided", "egress_ended"), "network"),
    **dict.fromkeys(("mcp_server_changed", "tools_offered"), "tools"),
    **dict.fromkeys(("changes_applied", "folder_drifted"), "folder"),
    "sandbox_ready": "container",
    "hook_ran": "hook",
    "job_finished": "job",
    "check_finished": "check",
}
"""What an event is about, in one word; its own name where that is one."""

_OWN_FIELDS = ("type", "agent_id", "parent_id")


def aside_of(entry: Entry) -> Aside | None:
    """The line of one event; None where it only repeats what is shown elsewhere."""
    event = entry.event
    if isinstance(event, CheckpointTaken) and not event.changed_count and event.origin == "start":
        return None
    title, text, tone = _of_the_session(event) or _of_the_model(event) or _of_the_rest(event) or _unknown(event)
    return Aside(
        seq=entry.seq,
        time_unix_s=entry.time_unix_s,
        kind=_KINDS.get(event.type, event.type.replace("_", " ")),
        title=title,
        text=text,
        tone=tone,
    )


_Line = tuple[str, str, Tone]


def _of_the_session(event: Event) -> _Line | None:
    match event:
        case SessionStarted():
            how = "Session started"
            if event.forked_from is not None:
                how = f"Fork of {event.forked_from} at step {event.forked_step}"
            elif event.resumed_from is not None:
                how = "Session gone on with"
            made_of = f"model {event.model}\npolicy {event.policy}, mode {event.mode}\nimage {event.image}"
            return how, f"{made_of}\nfolder {event.workspace} ({event.workspace_mode})", "info"
        case SandboxReady():
            ready = f"Container ready after {words.duration(event.start_s)}"
            return ready, f"{event.isolation}\ncontainer {event.container_id}, {event.transport}", "info"
        case RunFinished():
            tone: Tone = "good" if event.status == "done" else "bad"
            turns, took = words.count(event.turns, "turn"), words.duration(event.duration_s)
            return f"Run ended: {event.status.replace('_', ' ')} ({turns}, {took})", event.error or "", tone
        case LimitReached():
            return f"Limit reached: {event.limit} = {event.value:g}", "", "bad"
        case CheckpointTaken():
            changed = words.count(event.changed_count, "path")
            lines = [f"{one.get('kind')} {one.get('path')}" for one in event.changed]
            back = f", back to step {event.restored}" if event.restored is not None else ""
            return f"Step {event.step} ({event.origin}{back}): {changed} changed", "\n".join(lines), "info"
        case ChangesApplied():
            applied, left = words.count(len(event.applied), "file"), len(event.unapplied)
            conflicts = [f"conflict {path}: {reason}" for path, reason in event.conflicts.items()]
            held = [f"withheld {path}: {reason}" for path, reason in event.withheld.items()]
            more = [*(f"applied {path}" for path in event.applied), *(f"kept {path}" for path in event.unapplied)]
            line = f"Applied to the folder: {applied}" + (f"; {left:,} kept back" if left else "")
            return line, "\n".join((*conflicts, *held, *more)), "warning" if conflicts else "info"
        case FolderDrifted():
            lines = [f"{one.get('kind')} {one.get('path')}" for one in event.changed]
            return (
                f"The folder was changed by others: {words.count(event.changed_count, 'path')}",
                "\n".join(lines),
                "warning",
            )
        case Notice():
            return event.text, "", "warning" if event.level == "warning" else "info"
        case _:
            return None


def _of_the_model(event: Event) -> _Line | None:
    match event:
        case ModelRetrying():
            return (
                f"The request is sent again (attempt {event.attempt}, after {event.wait_s:.1f} s)",
                event.reason,
                "info",
            )
        case ModelSwitched():
            return f"Model switched from {event.before} to {event.model}", event.reason, "warning"
        case ModelChanged():
            return f"Model changed from {event.before} to {event.model}", "", "info"
        case ModeChanged():
            return f"Mode changed from {event.before} to {event.mode} by the {event.by}", "", "info"
        case ConversationCompacted():
            shrunk = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return f"Conversation compacted ({event.reason}): {shrunk}", "", "info"
        case ResultsTrimmed():
            shrunk = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return f"{words.count(len(event.tool_use_ids), 'old result')} trimmed: {shrunk}", "", "info"
        case ConversationRewound():
            return f"Conversation rewound to entry {event.to_seq} (step {event.step})", "", "info"
        case ConversationCleared():
            return "Conversation begun anew", "", "info"
        case _:
            return None


def _of_the_rest(event: Event) -> _Line | None:
    match event:
        case HookRan():
            return hook_line(event), event.fault or event.reason or "", hook_tone(event)
        case JobFinished():
            ended = event.state if event.exit_code is None else f"{event.state}, exit {event.exit_code}"
            line = f"Background job {event.job_id} {ended} after {words.duration(event.duration_s)}"
            return line, "\n".join(filter(None, (event.what, event.note))), "info"
        case CheckFinished():
            return f"Check {event.command!r} {event.outcome}", event.output, "good" if event.passed else "bad"
        case EgressDecided():
            asked = f"{event.host}:{event.port}" if event.host else "a request for no host"
            times = f" ({event.times:,} times so far)" if event.times > 1 else ""
            if event.verdict == "allow":
                return f"Network: {asked} let pass{times}", event.address or "", "info"
            return f"Network: {asked} refused{times}", event.reason, "bad"
        case McpServerChanged():
            line = f"MCP server {event.server} ({event.place}): {event.state}, {words.count(len(event.tools), 'tool')}"
            shown = [event.shown, event.error, event.note, *event.tools]
            return line, "\n".join(filter(None, shown)), "bad" if event.state == "failed" else "info"
        case ToolsOffered():
            return f"Tools offered from now on: {len(event.tools)}", "\n".join(event.tools), "info"
        case _:
            return None


def hook_line(event: HookRan) -> str:
    """A hook and how it ended."""
    ended = "" if event.exit_code is None else f", exit {event.exit_code}"
    said = f": {event.decision}" if event.decision is not None else ""
    rewrote = ", rewrote the input" if event.rewritten is not None else ""
    return f"Hook {event.hook} ({event.event}, {event.place}{ended}, {words.duration(event.duration_s)}){said}{rewrote}"


def hook_tone(event: HookRan) -> Tone:
    """Whether it went wrong, or was against something."""
    if event.fault is not None or event.decision == "deny":
        return "bad"
    return "warning" if event.decision == "ask" else "info"


def _unknown(event: Event) -> _Line:
    fields = {key: value for key, value in encode(event).items() if key not in _OWN_FIELDS}
    return event.type.replace("_", " ").capitalize(), json.dumps(fields, indent=1, default=str), "info"
