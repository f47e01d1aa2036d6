"""A session's events as the lines of this protocol: `init` for each turn, messages, tasks, and one result a turn.

The shapes are those of `frontends.stream_json`; what this protocol wants besides is added here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from sandbox_agent.engine.session import Session
from sandbox_agent.events import (
    AssistantMessage,
    Event,
    HookRan,
    LimitReached,
    McpServerChanged,
    RequestStarted,
    RunFinished,
    SessionStarted,
)
from sandbox_agent.frontends.sdk.partial import Partial
from sandbox_agent.frontends.stream_json import StreamJson
from sandbox_agent.models.names import full_name
from sandbox_agent.types import JsonObject, Usage

PROTOCOL_LEVEL = "2.1.332"
"""What of the protocol is here, as its own clients number it."""

SYNTHETIC = "<synthetic>"
"""The model of a message that no model has said."""

_API_ERRORS = {401: "authentication_failed", 403: "authentication_failed", 402: "billing_error", 429: "rate_limit"}
_LIMITS = {"turns": ("error_max_turns", "max_turns"), "cost_usd": ("error_max_budget_usd", "max_budget_usd")}


@dataclass(slots=True)
class Spent:
    """What the whole process has used. `cost_usd` is None once something has no known price."""

    cost_usd: float | None = 0.0
    models: dict[str, Usage] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)

    def add(self, event: RunFinished, session: Session) -> None:
        """A turn ended."""
        used = event.cost_usd is not None or event.usage != Usage()
        if used and self.cost_usd is not None:
            self.cost_usd = None if event.cost_usd is None else self.cost_usd + event.cost_usd
        for name, usage in event.model_usage.items():
            self.models[name] = self.models.get(name, Usage()) + usage
            self.costs[name] = self.costs.get(name, 0.0) + (session.budget.prices.cost_usd(name, usage) or 0.0)

    def by_model(self) -> JsonObject:
        """As the result has it."""
        return {
            full_name(name) or name: {
                "inputTokens": used.input_tokens,
                "outputTokens": used.output_tokens,
                "cacheReadInputTokens": used.cache_read_input_tokens,
                "cacheCreationInputTokens": used.cache_creation_input_tokens,
                "webSearchRequests": 0,
                "costUSD": self.costs.get(name, 0.0),
            }
            for name, used in self.models.items()
        }


@dataclass(slots=True)
class Turn:
    """What a turn has come to so far. `stopped_by` is the reason of a hook that ended it."""

    began_s: float = field(default_factory=time.monotonic)
    uuids: list[str] = field(default_factory=list)
    asked_s: float | None = None
    api_s: float = 0.0
    in_tools: bool = False
    """Whether the last answer is complete and made calls: these are judged, or run."""
    stop_reason: str | None = None
    limit: LimitReached | None = None
    finished: RunFinished | None = None
    stopped_by: str | None = None
    told_uuids: bool = False


class Lines:
    """Turns events into lines. `turn` is the present one."""

    def __init__(self, session_id: str, *, partial: bool = False, hook_events: bool = False) -> None:
        self.session_id = session_id
        self.turn = Turn()
        self.spent = Spent()
        self._shapes = StreamJson()
        self._partial = Partial()
        self._wants_partial = partial
        self._hook_events = hook_events
        self.forward_text = False
        """Whether what sub-agents say goes to the program, too, and not only what they call."""
        self._servers: dict[str, JsonObject] = {}

    def line(self, kind: str, **fields: object) -> JsonObject:
        """A line of ours."""
        return {"type": kind, **fields, "session_id": self.session_id, "uuid": str(uuid.uuid4())}

    @property
    def servers(self) -> list[JsonObject]:
        """The MCP servers, as last told."""
        return list(self._servers.values())

    def server(self, name: str, status: str, **more: object) -> None:
        """What there is to say of a server from now on."""
        self._servers[name] = {"name": name, "status": status, **more}

    def init(self, session: Session, agents: Sequence[str]) -> JsonObject:
        """What every turn begins with."""
        return self.line(
            "system",
            subtype="init",
            cwd=str(session.workspace.host),
            tools=list(session.pool.names()),
            mcp_servers=[{key: one[key] for key in ("name", "status")} for one in self.servers],
            model=full_name(session.model.name),
            permissionMode=session.mode.value,
            claude_code_version=PROTOCOL_LEVEL,
            apiKeySource="none" if session.model.name.startswith("script:") else "ANTHROPIC_API_KEY",
            slash_commands=[],
            output_style="default",
            agents=list(agents),
            skills=[],
            plugins=[],
            policy=session.policy.name,
            workspace_mode=session.workspace.mode,
        )

    def of(self, event: Event, session: Session) -> Iterator[JsonObject]:
        """The lines of one event."""
        self._note(event)
        if self._wants_partial:
            for piece in self._partial.feed(event, full_name(session.model.name) or ""):
                yield self.line("stream_event", event=piece, parent_tool_use_id=None)
        else:
            for _ in self._partial.feed(event, ""):
                pass
        match event:
            case SessionStarted():
                for _ in self._shapes.lines(event):
                    pass  # `init` says it, for each turn
            case HookRan():
                if self._hook_events:
                    names = {"hook_event": _wire_name(event.event), "hook_name": event.hook}
                    yield self.line("system", subtype="hook_started", **names)
                    outcome = {"outcome": "error" if event.fault else event.decision or "success"}
                    yield self.line("system", subtype="hook_response", **names, **outcome)
            case _:
                for line in self._shapes.lines(event):
                    if self._wanted(line):
                        yield self._completed(line)

    def _note(self, event: Event) -> None:
        turn = self.turn
        match event:
            case McpServerChanged():
                status = event.state if event.state in ("connected", "failed", "pending") else "disabled"
                self.server(event.server, status, error=event.error, tools=[{"name": one} for one in event.tools])
            case _ if event.agent_id != "main":
                pass
            case RequestStarted():
                turn.asked_s, turn.in_tools = time.monotonic(), False
            case AssistantMessage():
                turn.stop_reason = event.stop_reason
                turn.in_tools = any(block.get("type") == "tool_use" for block in event.content)
                turn.api_s += time.monotonic() - (turn.asked_s or time.monotonic())
            case LimitReached():
                turn.limit = event
            case RunFinished():
                turn.finished = event
            case _:
                pass

    def _wanted(self, line: JsonObject) -> bool:
        if line["type"] != "assistant" or self.forward_text or line["parent_tool_use_id"] is None:
            return True
        return bool(line["message"]["content"][0].get("type") == "tool_use")

    def _completed(self, line: JsonObject) -> JsonObject:
        line["session_id"] = self.session_id
        if line.get("subtype") == "task_notification":
            line.setdefault("output_file", "")
        if line["type"] == "assistant" and self.turn.uuids and not self.turn.told_uuids:
            self.turn.told_uuids = True
            line |= {"user_message_uuid": self.turn.uuids[-1], "user_message_uuids": list(self.turn.uuids)}
        return line

    def said_by_nobody(self, text: str, error: str | None = None, model: str = SYNTHETIC) -> JsonObject:
        """A message of no model: a fault in words, or what an answer had said when it was interrupted."""
        content = [{"type": "text", "text": text}]
        usage = asdict(Usage())
        head = {"id": str(uuid.uuid4()), "type": "message", "role": "assistant", "model": model}
        message = {**head, "content": content, "stop_reason": None, "usage": usage}
        more = {"error": error} if error is not None else {}
        return self.line("assistant", message=message, parent_tool_use_id=None, **more)

    @property
    def unfinished_text(self) -> str:
        """What the answer under way has said so far."""
        return self._partial.text

    def fault_lines(self, finished: RunFinished) -> Iterator[JsonObject]:
        """What comes before the result of a turn that the model failed."""
        if finished.status == "model_error":
            error = _API_ERRORS.get(finished.api_status or 0)
            if error is None:
                server = finished.api_status is not None and finished.api_status >= 500
                client = finished.api_status is not None and finished.api_status >= 400
                error = "server_error" if server else "invalid_request" if client else "unknown"
            yield self.said_by_nobody(finished.error or "the model failed", error)

    def result(self, session: Session, more: JsonObject) -> JsonObject:
        """The line that ends the turn; `more` has what became of the changes, and wins."""
        turn, finished = self.turn, self.turn.finished
        assert finished is not None
        self.spent.add(finished, session)
        said = _ending(turn, finished) | more
        return self.result_line(
            duration_ms=round((time.monotonic() - turn.began_s) * 1000),
            duration_api_ms=round(turn.api_s * 1000),
            num_turns=finished.turns,
            stop_reason=turn.stop_reason,
            usage=asdict(finished.usage),
            permission_denials=[
                {key: denial.get(key) for key in ("tool_name", "tool_use_id", "tool_input", "reason")}
                for denial in finished.denials
            ],
            **said,
        )

    def result_line(self, **fields: object) -> JsonObject:
        """A result, also where no turn was: all keys that a client needs are there."""
        line: JsonObject = {
            "subtype": "success",
            "is_error": False,
            "duration_ms": 0,
            "duration_api_ms": 0,
            "num_turns": 0,
            "result": None,
            "stop_reason": None,
            "terminal_reason": "completed",
            "usage": asdict(Usage()),
            "total_cost_usd": self.spent.cost_usd,
            "modelUsage": self.spent.by_model(),
            "permission_denials": [],
            **fields,
        }
        if self.turn.uuids:
            line |= {"user_message_uuid": self.turn.uuids[-1], "user_message_uuids": list(self.turn.uuids)}
        return self.line("result", **line)

    def ended_by(self, name: str) -> JsonObject:
        """The result of what a signal of this name has ended."""
        reason = "interrupted" if name == "SIGINT" else "terminated"
        fields = {"subtype": "error_during_execution", "is_error": True, "errors": [f"ended by {name}"]}
        return self.result_line(**fields, terminal_reason=reason)


def _ending(turn: Turn, finished: RunFinished) -> JsonObject:
    """How a turn ended, in the words of this protocol."""
    error = finished.error or finished.status
    if turn.stopped_by is not None:
        text = finished.text or turn.stopped_by
        return {"subtype": "success", "is_error": False, "result": text, "terminal_reason": "hook_stopped"}
    match finished.status:
        case "done" | "denied":
            return {"subtype": "success", "is_error": False, "result": finished.text, "terminal_reason": "completed"}
        case "model_error":
            status = {"api_error_status": finished.api_status, "terminal_reason": "api_error"}
            return {"subtype": "success", "is_error": True, "result": error, "errors": [error], **status}
        case "limit":
            name = turn.limit.limit if turn.limit is not None else ""
            subtype, reason = _LIMITS.get(name, ("error_during_execution", f"max_{name}"))
        case "interrupted":
            subtype, reason = "error_during_execution", "aborted_tools" if turn.in_tools else "aborted_streaming"
        case _:
            subtype, reason = "error_during_execution", finished.status
    return {"subtype": subtype, "is_error": True, "errors": [error], "terminal_reason": reason}


def _wire_name(event: str) -> str:
    return "".join(part.capitalize() for part in event.split("_"))
