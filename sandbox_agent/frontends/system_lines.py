"""Lines of `stream-json` of the type `system`: one small function for each event that has one."""

from __future__ import annotations

from dataclasses import asdict
from functools import singledispatch

from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    CallEffects,
    CheckFinished,
    CheckStarted,
    ConversationCompacted,
    EgressDecided,
    EgressEnded,
    Event,
    FolderDrifted,
    JobFinished,
    JobStarted,
    LimitReached,
    McpServerChanged,
    ModeChanged,
    ModelRetrying,
    ModelSwitched,
    Notice,
    PermissionDecided,
    ResultsTrimmed,
    SandboxReady,
    ToolProgress,
    ToolsOffered,
)
from sandbox_agent.frontends import network
from sandbox_agent.types import JsonObject


@singledispatch
def line_of(event: Event) -> JsonObject | None:
    """What the line of an event says besides its type; None for an event that has no line of its own."""
    return None


@line_of.register
def _sandbox_ready(event: SandboxReady) -> JsonObject:
    return {
        "subtype": "sandbox_ready",
        "container_id": event.container_id,
        "isolation": event.isolation,
        "transport": event.transport,
        "start_ms": round(event.start_s * 1000),
    }


@line_of.register
def _model_retrying(event: ModelRetrying) -> JsonObject:
    delay_ms = round(event.wait_s * 1000)
    return {
        "subtype": "api_retry",
        "attempt": event.attempt,
        "retry_delay_ms": delay_ms,
        "error": event.reason,
    }


@line_of.register
def _model_switched(event: ModelSwitched) -> JsonObject:
    names = {"model": event.model, "previous_model": event.before}
    return {"subtype": "model_switched", **names, "reason": event.reason}


@line_of.register
def _permission_decided(event: PermissionDecided) -> JsonObject | None:
    if event.verdict != "deny":
        return None
    return {
        "subtype": "permission_denied",
        "tool_name": event.tool,
        "tool_use_id": event.call_id,
        "reason": event.reason,
        "rule": event.rule,
        "location": event.location,
    }


@line_of.register
def _call_effects(event: CallEffects) -> JsonObject:
    return {"subtype": "call_effects", **_effects(event)}


@line_of.register
def _egress_decided(event: EgressDecided | EgressEnded) -> JsonObject:
    return network.line_of(event)


@line_of.register
def _mcp_server_changed(event: McpServerChanged) -> JsonObject:
    fields = asdict(event)
    del fields["agent_id"], fields["parent_id"]
    return {"subtype": "mcp_server", **fields}


@line_of.register
def _tools_offered(event: ToolsOffered) -> JsonObject:
    return {"subtype": "tools_offered", "tools": list(event.tools), "dropped": list(event.dropped)}


@line_of.register
def _tool_progress(event: ToolProgress) -> JsonObject:
    return {
        "subtype": "tool_progress",
        "tool_use_id": event.call_id,
        "server": event.server,
        "progress": event.progress,
        "total": event.total,
        "message": event.message,
    }


@line_of.register
def _mode_changed(event: ModeChanged) -> JsonObject:
    return {"subtype": "mode_changed", "permissionMode": event.mode, "before": event.before, "by": event.by}


@line_of.register
def _limit_reached(event: LimitReached) -> JsonObject:
    return {"subtype": "limit_reached", "limit": event.limit, "value": event.value}


@line_of.register
def _results_trimmed(event: ResultsTrimmed) -> JsonObject:
    return {"subtype": "results_trimmed", "tool_use_ids": list(event.tool_use_ids), **_lengths(event)}


@line_of.register
def _conversation_compacted(event: ConversationCompacted) -> JsonObject:
    trigger = "manual" if event.reason == "asked" else "auto"
    metadata = {"trigger": trigger, "pre_tokens": event.tokens_before}
    return {"subtype": "compact_boundary", "compact_metadata": metadata, "reason": event.reason} | _lengths(event)


@line_of.register
def _check_started(event: CheckStarted) -> JsonObject:
    return {"subtype": "check_started", "number": event.number, "count": event.count, "command": event.command}


@line_of.register
def _check_finished(event: CheckFinished) -> JsonObject:
    return {"subtype": "check_finished", "number": event.number, **event.as_json()}


@line_of.register
def _folder_drifted(event: FolderDrifted) -> JsonObject:
    changed = [{"path": one["path"], "kind": one["kind"]} for one in event.changed]
    return {"subtype": "folder_drifted", "changed": changed, "changed_count": event.changed_count}


@line_of.register
def _notice(event: Notice) -> JsonObject:
    return {"subtype": "notice", "level": event.level, "text": event.text}


@line_of.register
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


@line_of.register
def _agent_finished(event: AgentFinished) -> JsonObject:
    return {
        "subtype": "task_notification",
        "task_id": event.agent_id,
        "tool_use_id": event.call_id,
        "status": "completed" if event.status in ("done", "denied") else "failed",
        "run_status": event.status,
        "output_file": "",
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


@line_of.register
def _job_started(event: JobStarted) -> JsonObject | None:
    if event.kind != "shell":
        return None  # an agent has lines of its own
    return {
        "subtype": "task_started",
        "task_id": event.job_id,
        "tool_use_id": event.call_id,
        "task_type": "local_bash",
        "description": event.what,
        "output_file": event.output_path,
        "timeout_ms": None if event.limit_s is None else round(event.limit_s * 1000),
    }


@line_of.register
def _job_finished(event: JobFinished) -> JsonObject | None:
    if event.kind != "shell":
        return None  # an agent has lines of its own
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
        "sent_bytes": event.sent_bytes,
        "received_bytes": event.received_bytes,
        "contradictions": list(event.contradictions),
    }
