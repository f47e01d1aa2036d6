"""Events as the JSON lines programs read: system/init, assistant, user with tool results, result.

The shape is the one the field uses (one assistant line a content block, one user line a tool result); keys of our own
are added, never renamed. Every line is plain ASCII, so it is as safe on a terminal as in a file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TextIO

from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    CallEffects,
    ConversationCompacted,
    EgressDecided,
    EgressEnded,
    Event,
    FolderDrifted,
    JobFinished,
    JobStarted,
    LimitReached,
    ModelRetrying,
    ModelSwitched,
    Notice,
    PermissionDecided,
    ResultsTrimmed,
    SandboxReady,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
)
from sandbox_agent.frontends import network
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.types import JsonObject, Usage

_SUBTYPES = {"done": "success", "denied": "success"}
_LIMIT_SUBTYPES = {"turns": "error_max_turns", "cost_usd": "error_max_budget_usd"}


def dump(value: JsonObject) -> str:
    """One line of JSON in ASCII; a lone surrogate or a control character of a model becomes an escape."""
    return json.dumps(value, separators=(",", ":"), default=str)


def result(summary: RunSummary) -> JsonObject:
    """The closing object of a run; `--output json` prints it alone, `stream-json` as the last line."""
    finished, status, limit = summary.finished, summary.status, summary.limit
    subtype = _SUBTYPES.get(status, "error_during_execution")
    if status == "limit" and limit is not None:
        subtype = _LIMIT_SUBTYPES.get(limit.limit, "error_limit")
    error = summary.error
    return {
        "type": "result",
        "subtype": subtype,
        "session_id": summary.started.session_id if summary.started else None,
        "status": status,
        "is_error": subtype != "success",
        "result": finished.text if finished else "",
        "num_turns": finished.turns if finished else 0,
        "duration_ms": round(finished.duration_s * 1000) if finished else 0,
        "stop_reason": summary.stop_reason,
        "usage": asdict(finished.usage if finished else Usage()),
        "model_usage": {name: asdict(used) for name, used in finished.model_usage.items()} if finished else {},
        "total_cost_usd": finished.cost_usd if finished else None,
        "limit": {"name": limit.limit, "value": limit.value} if limit is not None and status == "limit" else None,
        "permission_denials": [
            {key: denial.get(key) for key in ("tool_name", "tool_use_id", "tool_input", "reason")}
            for denial in summary.denials
        ],
        "contradictions": summary.contradictions,
        "hosts_asked": summary.network.as_json(),
        **changes(summary),
        "record_head": summary.record_head,
        "exit_code": summary.exit_code,
        "error": error,
    } | ({"errors": [error or status]} if subtype != "success" else {})


def changes(summary: RunSummary) -> JsonObject:
    """What became of the changes, and what else there is to know about the folder; `apply --json` prints it, too."""
    return {
        "applied_files": summary.applied_files,
        "partially_applied_files": summary.partially_applied_files,
        "unapplied_files": summary.unapplied_files,
        "conflicts": summary.conflicts,
        "withheld": summary.withheld,
        "dangers": summary.dangers,
        "drifted_files": summary.drifted_files,
        "unexported_commits": summary.unexported_commits,
    }


class StreamJson:
    """Turns events into lines. `new_id` makes the `uuid` of each line."""

    def __init__(self, *, new_id: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._new_id = new_id
        self._session_id: str | None = None
        self._meta: dict[str, JsonObject] = {}
        self._started_by: dict[str, str] = {}

    def lines(self, event: Event) -> Iterator[JsonObject]:
        """What to print for one event: nothing, one object, or several."""
        match event:
            case SessionStarted():
                self._session_id = event.session_id
                yield self._line(event, "system", subtype="init", **_init(event))
            case AgentStarted():
                self._started_by[event.agent_id] = event.call_id
                yield self._line(event, "system", **_agent_started(event))
            case AssistantMessage():
                for block in event.content:
                    yield self._said(event, "assistant", message=_assistant(event, block))
            case ToolFinished():
                self._meta[event.call_id] = event.meta
            case CallDiscarded():
                self._meta.pop(event.call_id, None)
                call = {"tool_name": event.tool, "tool_use_id": event.call_id}
                yield self._line(event, "system", subtype="call_discarded", **call, reason=event.reason)
            case ToolResultsMessage():
                for block in event.content:
                    meta = self._meta.pop(str(block.get("tool_use_id")), None)
                    message = {"role": "user", "content": [block]}
                    yield self._said(event, "user", message=message, tool_use_result=meta)
            case _:
                system = _system(event)
                if system is not None:
                    yield self._line(event, "system", **system)

    def last_line(self, summary: RunSummary) -> JsonObject:
        """The result line."""
        return result(summary) | {"uuid": self._new_id()}

    def _said(self, event: Event, kind: str, **fields: object) -> JsonObject:
        """A message of an agent; `parent_tool_use_id` is the call that started it, None for the first agent."""
        return self._line(event, kind, **fields, parent_tool_use_id=self._started_by.get(event.agent_id))

    def _line(self, event: Event, kind: str, **fields: object) -> JsonObject:
        line: JsonObject = {"type": kind, **fields, "session_id": self._session_id, "uuid": self._new_id()}
        return line if event.agent_id == "main" else line | {"agent_id": event.agent_id}


def _init(event: SessionStarted) -> JsonObject:
    return {
        "cwd": event.workspace,
        "model": event.model,
        "tools": list(event.tools),
        "permissionMode": event.mode,
        "mcp_servers": [],
        "policy": event.policy,
        "image": event.image,
        "workspace_mode": event.workspace_mode,
        "sandbox_agent_version": event.version,
        "resumed_from": event.resumed_from,
    }


def _assistant(event: AssistantMessage, block: JsonObject) -> JsonObject:
    """The message with one block. The stop reason is the whole answer's, so, as in the field, no line carries it."""
    return {
        "id": event.message_id,
        "type": "message",
        "role": "assistant",
        "model": event.model,
        "content": [block],
        "stop_reason": None,
        "usage": asdict(event.usage),
    }


def _system(event: Event) -> JsonObject | None:
    match event:
        case SandboxReady():
            return {
                "subtype": "sandbox_ready",
                "container_id": event.container_id,
                "isolation": event.isolation,
                "transport": event.transport,
                "start_ms": round(event.start_s * 1000),
            }
        case ModelRetrying():
            delay_ms = round(event.wait_s * 1000)
            return {
                "subtype": "api_retry",
                "attempt": event.attempt,
                "retry_delay_ms": delay_ms,
                "error": event.reason,
            }
        case ModelSwitched():
            names = {"model": event.model, "previous_model": event.before}
            return {"subtype": "model_switched", **names, "reason": event.reason}
        case PermissionDecided(verdict="deny"):
            return {
                "subtype": "permission_denied",
                "tool_name": event.tool,
                "tool_use_id": event.call_id,
                "reason": event.reason,
                "rule": event.rule,
                "location": event.location,
            }
        case AgentFinished():
            return _agent_finished(event)
        case JobStarted(kind="shell"):
            return _job_started(event)
        case JobFinished(kind="shell"):
            return _job_finished(event)
        case CallEffects():
            return {"subtype": "call_effects", **_effects(event)}
        case EgressDecided() | EgressEnded():
            return network.line_of(event)
        case LimitReached():
            return {"subtype": "limit_reached", "limit": event.limit, "value": event.value}
        case ResultsTrimmed():
            return {"subtype": "results_trimmed", "tool_use_ids": list(event.tool_use_ids), **_lengths(event)}
        case ConversationCompacted():
            trigger = "manual" if event.reason == "asked" else "auto"
            metadata = {"trigger": trigger, "pre_tokens": event.tokens_before}
            return {"subtype": "compact_boundary", "compact_metadata": metadata, "reason": event.reason} | _lengths(
                event
            )
        case FolderDrifted():
            changed = [{"path": one["path"], "kind": one["kind"]} for one in event.changed]
            return {"subtype": "folder_drifted", "changed": changed, "changed_count": event.changed_count}
        case Notice():
            return {"subtype": "notice", "level": event.level, "text": event.text}
        case _:
            return None


def _agent_started(event: AgentStarted) -> JsonObject:
    return {
        "subtype": "task_started",
        "task_id": event.agent_id,
        "tool_use_id": event.call_id,
        "task_type": "local_agent",
        "description": event.description,
        "agent_type": event.agent_type,
        "model": event.model,
        "tools": list(event.tools),
        "background": event.background,
        "continued": event.continued,
    }


def _agent_finished(event: AgentFinished) -> JsonObject:
    return {
        "subtype": "task_notification",
        "task_id": event.agent_id,
        "tool_use_id": event.call_id,
        "status": "completed" if event.status in ("done", "denied") else "failed",
        "run_status": event.status,
        "summary": event.text,
        "error": event.error,
        "num_turns": event.turns,
        "usage": {
            **asdict(event.usage),
            "total_tokens": event.usage.total_tokens,
            "tool_uses": event.calls,
            "duration_ms": round(event.duration_s * 1000),
        },
    }


def _job_started(event: JobStarted) -> JsonObject:
    return {
        "subtype": "task_started",
        "task_id": event.job_id,
        "tool_use_id": event.call_id,
        "task_type": "local_bash",
        "description": event.what,
        "output_file": event.output_path,
        "timeout_ms": None if event.limit_s is None else round(event.limit_s * 1000),
    }


def _job_finished(event: JobFinished) -> JsonObject:
    ended_well = event.state == "exited" and event.exit_code == 0
    stopped = event.state in ("killed", "closed")
    return {
        "subtype": "task_notification",
        "task_id": event.job_id,
        "tool_use_id": event.call_id,
        "status": "completed" if ended_well else "stopped" if stopped else "failed",
        "run_status": event.state,
        "exit_code": event.exit_code,
        "summary": event.what,
        "note": event.note,
        "output_file": event.output_path or "",
        "output_bytes": event.output_bytes,
        "duration_ms": round(event.duration_s * 1000),
    }


def _lengths(event: ResultsTrimmed | ConversationCompacted) -> JsonObject:
    names = ("tokens_before", "tokens_after", "window_tokens")
    return {name: getattr(event, name) for name in names}


def _effects(event: CallEffects) -> JsonObject:
    return {
        "tool_name": event.tool,
        "tool_use_id": event.call_id,
        "read_only": event.read_only,
        "batch": event.batch,
        "duration_ms": round(event.duration_s * 1000),
        "changed": None if event.changed is None else list(event.changed),
        "changed_count": event.changed_count,
        "shared_with": list(event.shared_with),
        "left_processes": event.left_processes,
        "hosts": list(event.hosts),
        "exit_code": event.exit_code,
        "timed_out": event.timed_out,
        "oom_killed": event.oom_killed,
        "cpu_s": event.cpu_s,
        "max_rss_bytes": event.max_rss_bytes,
        "contradictions": list(event.contradictions),
    }


def write_line(out: TextIO, value: JsonObject) -> None:
    """Print one object on a line of its own, at once.

    Raises:
        BrokenPipeError: the reader went away.
    """
    out.write(dump(value) + "\n")
    out.flush()
