"""A session with sub-agents, each played by its own function or list of turns, found by the first words it was told."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine_session import make_session, use

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.past import Past
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.subagents import Team
from sandbox_agent.events import Event
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.send_message import TOOL as SEND_MESSAGE
from sandbox_agent.tools.task import TOOL as TASK
from sandbox_agent.tools.task_output import TOOL as TASK_OUTPUT
from sandbox_agent.tools.task_stop import TOOL as TASK_STOP
from sandbox_agent.types import JsonObject, Limits, Mode

AGENT_TOOLS = (TASK, SEND_MESSAGE, TASK_OUTPUT, TASK_STOP)
GENERAL = AgentType("general-purpose", "any work", "You are a sub-agent.")
PLANNER = AgentType("planner", "looks", "You only look.", mode=Mode.PLAN)
TYPES = {kind.name: kind for kind in (GENERAL, PLANNER)}

Part = Sequence[Mapping[str, Any]] | Callable[[ModelRequest], Any]


class Cast:
    """Who plays which agent: by the text that its first message begins with; a list has its answers in order, the same
    for each agent of that text. `requests` has what was asked."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self.parts = parts
        self.requests: dict[str, list[ModelRequest]] = {name: [] for name in parts}

    async def __call__(self, request: ModelRequest) -> Any:
        words = first_words(request)
        name = next(name for name in self.parts if words.startswith(name))
        self.requests[name].append(request)
        part = self.parts[name]
        if callable(part):
            said = part(request)
            return await said if inspect.isawaitable(said) else said
        return part[sum(message["role"] == "assistant" for message in request.messages)]


def first_words(request: ModelRequest) -> str:
    return str(request.messages[0]["content"][0]["text"])


def heard(request: ModelRequest) -> str:
    """All text of the last user message, results included."""
    return "\n".join(str(block.get("text", block.get("content"))) for block in request.messages[-1]["content"])


def task(prompt: str, /, **fields: Any) -> JsonObject:
    """A call of Task; the prompt is who plays it."""
    return use("Task", **{"description": f"do {prompt}", "prompt": prompt, **fields})


def tools(*calls: JsonObject, **more: Any) -> JsonObject:
    return {"tools": list(calls), **more}


def say(text: str) -> JsonObject:
    return {"text": text}


@asynccontextmanager
async def make_team(
    parts: Mapping[str, Part],
    folder: Path,
    *,
    own: Sequence[Tool] = (),
    types: Mapping[str, AgentType] = TYPES,
    limits: Limits | None = None,
    past: Past | None = None,
    **options: Any,
) -> AsyncIterator[Session]:
    """As `make_session`; the tools are those for sub-agents, and `own`. `past` is the session that goes on."""
    cast = Cast(parts)
    async with make_session(cast, folder, tools=(*AGENT_TOOLS, *own), limits=limits, **options) as session:
        earlier = (past.agents, past.jobs) if past is not None else ()
        Team(types, session.limits, session.jobs, *earlier).attach(session)
        yield session


def by_agent(events: Sequence[Event], kind: type[Any]) -> list[tuple[str, Any]]:
    return [(event.agent_id, event) for event in events if isinstance(event, kind)]
