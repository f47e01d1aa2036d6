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
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    Event,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
)
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.frontends.system_lines import line_of
from sandbox_agent.types import JsonObject, Usage

_SUBTYPES = {"done": "success", "denied": "success"}
ANSWER_MISSING = "error_max_structured_output_retries"
"""The subtype of a task that ended without the structured answer it was to give."""

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
    if finished is not None and finished.answer_missing and summary.fault_status is None:
        subtype = ANSWER_MISSING
    error = summary.error
    return {
        "type": "result",
        "subtype": subtype,
        "session_id": summary.started.session_id if summary.started else None,
        "status": status,
        "is_error": subtype != "success",
        "result": finished.text if finished else "",
        "structured_output": finished.structured_output if finished else None,
        "num_turns": finished.turns if finished else 0,
        "duration_ms": round(finished.duration_s * 1000) if finished else 0,
        "stop_reason": summary.stop_reason,
        "terminal_reason": _terminal_reason(status, limit.limit if limit is not None else None),
        "usage": asdict(finished.usage if finished else Usage()),
        "model_usage": {name: asdict(used) for name, used in finished.model_usage.items()} if finished else {},
        "modelUsage": {name: _camel(used) for name, used in finished.model_usage.items()} if finished else {},
        "total_cost_usd": finished.cost_usd if finished else None,
        "limit": {"name": limit.limit, "value": limit.value} if limit is not None and status == "limit" else None,
        "permission_denials": [
            {key: denial.get(key) for key in ("tool_name", "tool_use_id", "tool_input", "reason")}
            for denial in summary.denials
        ],
        "contradictions": summary.contradictions,
        "checks": [one.as_json() for one in summary.checks],
        "resources": summary.resources.as_json(),
        "hosts_asked": summary.network.as_json(),
        **changes(summary),
        "record_head": summary.record_head,
        "exit_code": summary.exit_code,
        "error": error,
    } | ({"errors": [error or status]} if subtype != "success" else {})


def _terminal_reason(status: str, limit: str | None) -> str:
    """Why it ended, in the field's words where it has any, else the status."""
    if status == "limit":
        return {"turns": "max_turns", "cost_usd": "max_budget_usd"}.get(limit or "", f"max_{limit}")
    return {"done": "completed", "denied": "completed", "model_error": "api_error"}.get(status, status)


def _camel(used: Usage) -> JsonObject:
    """The same figures as in `model_usage`, named as the field names them."""
    return {
        "inputTokens": used.input_tokens,
        "outputTokens": used.output_tokens,
        "cacheReadInputTokens": used.cache_read_input_tokens,
        "cacheCreationInputTokens": used.cache_creation_input_tokens,
    }


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
        self._meta: dict[tuple[str, str], JsonObject] = {}
        self._started_by: dict[str, str] = {}

    def lines(self, event: Event) -> Iterator[JsonObject]:
        """What to print for one event: nothing, one object, or several."""
        match event:
            case SessionStarted():
                self._session_id = event.session_id
                yield self._line(event, "system", subtype="init", **_init(event))
            case AgentStarted():
                self._started_by[event.agent_id] = event.call_id
                yield self._line(event, "system", **(line_of(event) or {}))
            case AssistantMessage():
                for block in event.content:
                    yield self._said(event, "assistant", message=_assistant(event, block))
            case ToolFinished():
                self._meta[event.agent_id, event.call_id] = event.meta
            case CallDiscarded():
                self._meta.pop((event.agent_id, event.call_id), None)
                call = {"tool_name": event.tool, "tool_use_id": event.call_id}
                yield self._line(event, "system", subtype="call_discarded", **call, reason=event.reason)
            case ToolResultsMessage():
                for block in event.content:
                    meta = self._meta.pop((event.agent_id, str(block.get("tool_use_id"))), None)
                    message = {"role": "user", "content": [block]}
                    yield self._said(event, "user", message=message, tool_use_result=meta)
            case _:
                system = line_of(event)
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
        "mcp_servers": [{**server, "status": "pending"} for server in event.mcp_servers],
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


def write_line(out: TextIO, value: JsonObject) -> None:
    """Print one object on a line of its own, at once.

    Raises:
        BrokenPipeError: the reader went away.
    """
    out.write(dump(value) + "\n")
    out.flush()
