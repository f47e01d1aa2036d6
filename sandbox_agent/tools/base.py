"""The one contract of every tool, built-in, MCP or the user's own, with fail-closed defaults."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.tools.agents import AgentDesk
from sandbox_agent.tools.jobs import JobDesk
from sandbox_agent.tools.page_cache import PageCache
from sandbox_agent.tools.planning import PlanDesk
from sandbox_agent.tools.questions import Ask
from sandbox_agent.types import WORKSPACE_MOUNT, JsonObject, Subject, ToolResult, Withheld


class ToolInput(BaseModel):
    """Base of every tool's input: unknown fields are errors; number-like and bool-like strings are coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


@dataclass(slots=True)
class ToolContext:
    """All that a tool may touch: no session, no model, no policy. One per agent.

    `known_files` maps a resolved container path to the SHA-256 of the content the model last saw whole or in part.
    `failed_edits` counts identical failing Edit calls by input digest. `resolved` maps each path of a subject to where
    it led when the gate judged it: pass `resolved=ctx.resolved.get(path)` to the sandbox's file verbs, which refuse if
    it leads elsewhere by then.
    """

    sandbox: Sandbox
    workspace_host: str
    cwd: str = WORKSPACE_MOUNT
    agent_id: str = "main"
    known_files: dict[str, str] = field(default_factory=dict)
    failed_edits: dict[str, int] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    masked: Callable[[str], str | None] = lambda path: None
    """Resolved container path to the mask rule that hides it, None if it is not masked."""
    withheld: Callable[[str, str], Withheld | None] = lambda folder, resolved: None
    """A folder to search, as spelled and resolved, to what must not be shown of it. The gate sets it."""
    ask: Ask | None = None
    """Puts questions to the person; None where nobody answers any."""
    plan: PlanDesk | None = None
    """The way in and out of plan mode; None where there is none."""
    opens: Callable[[str, int], bool] = lambda host, port: False
    """Whether the network's gate lets a (canonical) host and port pass."""
    pages: PageCache = field(default_factory=PageCache)
    """What was fetched from the network."""

    by_name: bool = False
    """Whether a listing of files is in the order of their names rather than of their times."""

    restarts_told: int | None = None
    """How many of the sandbox's restarts this agent knows of; None before its first call. The engine's own."""
    agents: AgentDesk | None = None
    """The sub-agents of this agent; None where there are none."""

    jobs: JobDesk | None = None
    """The jobs of this agent, what runs on after its call; None where nothing can."""

    def container_path(self, path: str) -> str:
        """The absolute container path a tool input means: relative to cwd, and host paths of the workspace translated.

        `~` is the tools' home. Only the spelling is normalised ("..", doubled slashes), links are not looked at.
        """
        if path == "~" or path.startswith("~/"):
            path = "/home/agent" + path[1:]
        absolute = posixpath.normpath(posixpath.join(self.cwd, path))
        if absolute.startswith("//"):
            absolute = absolute[1:]
        host = self.workspace_host.rstrip("/")
        if host and host != WORKSPACE_MOUNT and (absolute == host or absolute.startswith(host + "/")):
            return posixpath.normpath(WORKSPACE_MOUNT + absolute[len(host) :])
        return absolute


_CALL_ID: ContextVar[str] = ContextVar("sandbox_agent_call_id", default="")


@contextmanager
def as_call(call_id: str) -> Iterator[None]:
    """The current task, and every one that it starts, runs this call meanwhile."""
    token = _CALL_ID.set(call_id)
    try:
        yield
    finally:
        _CALL_ID.reset(token)


def current_call() -> str:
    """The id of the call that the current task runs, "" outside of any. Calls run side by side with one context."""
    return _CALL_ID.get()


def _never(_: Any) -> bool:
    return False


def _bare_subject(_: Any, __: ToolContext) -> Subject:
    return Subject(summary="")


Run = Callable[[Any, ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. Predicates take the *parsed* input; unset they are False, and one that raises counts as False.

    `read_only`: the call changes nothing. `parallel_safe`: it may run beside others. `apart`: it has no way to the
    workspace, so that it may run beside calls that change that. `edits`: it is covered by the
    mode acceptEdits. `subject` says what the call is about. `timeout_s` is the engine's own deadline for the whole
    call, None for tools that bound themselves. A result longer than `max_result_chars` is cut in the middle.
    `input_schema` replaces the schema made from `input_model` (MCP). `prepare` is for what `subject` and the predicates
    need long for: it is called with the parsed input before them, in a thread, and keeps what it finds.
    """

    name: str
    description: str
    input_model: type[BaseModel]
    run: Run
    read_only: Callable[[Any], bool] = _never
    parallel_safe: Callable[[Any], bool] = _never
    edits: Callable[[Any], bool] = _never
    subject: Callable[[Any, ToolContext], Subject] = _bare_subject
    timeout_s: float | None = 120.0
    max_result_chars: int = 50_000
    source: str = "builtin"
    input_schema: JsonObject | None = None
    prepare: Callable[[Any], object] | None = None
    apart: bool = False

    def definition(self) -> JsonObject:
        """The tool as the Messages API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema or {}}


def build_tool(
    *,
    name: str,
    description: str,
    input_model: type[BaseModel],
    run: Run,
    read_only: Callable[[Any], bool] | bool = False,
    parallel_safe: Callable[[Any], bool] | bool = False,
    edits: Callable[[Any], bool] | bool = False,
    subject: Callable[[Any, ToolContext], Subject] = _bare_subject,
    timeout_s: float | None = 120.0,
    max_result_chars: int = 50_000,
    source: str = "builtin",
    input_schema: JsonObject | None = None,
    prepare: Callable[[Any], object] | None = None,
    apart: bool = False,
) -> Tool:
    """A `Tool` from its parts; everything left out gets the strict default, constants become predicates.

    Raises:
        ValueError: the name is not one the Messages API takes ([a-zA-Z0-9_-]{1,64}), or the description is empty.
    """
    if not 1 <= len(name) <= 64 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
        raise ValueError(f"tool name {name!r}: 1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not description.strip():
        raise ValueError(f"tool {name}: the description is empty")
    return Tool(
        name=name,
        description=description,
        input_model=input_model,
        run=run,
        read_only=_predicate(read_only),
        parallel_safe=_predicate(parallel_safe),
        edits=_predicate(edits),
        subject=subject,
        timeout_s=timeout_s,
        max_result_chars=max_result_chars,
        source=source,
        input_schema=input_schema or _schema(input_model),
        prepare=prepare,
        apart=apart,
    )


def _predicate(value: Callable[[Any], bool] | bool) -> Callable[[Any], bool]:
    if callable(value):
        return value
    constant = value
    return lambda _: constant


def _schema(model: type[BaseModel]) -> JsonObject:
    """The model's JSON Schema by alias, without what only costs tokens: titles, docstring, null for "left out"."""
    schema: JsonObject = _plain(model.model_json_schema(by_alias=True))
    schema.pop("description", None)
    return schema


def _plain(schema: Any, *, names: bool = False) -> Any:
    if isinstance(schema, list):
        return [_plain(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    if names:
        return {key: _plain(value) for key, value in schema.items()}
    plain = {
        key: _plain(value, names=key in ("properties", "$defs"))
        for key, value in schema.items()
        if key != "title" and (key, value) != ("default", None)
    }
    others = [one for one in plain.get("anyOf", ()) if one != {"type": "null"}]
    if len(others) == 1:
        del plain["anyOf"]
        plain |= others[0]
    return plain
