"""A sub-agent's session and tools, made of its parent's: never more than the parent has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.queue import MessageQueue
from sandbox_agent.engine.session import BACKGROUND_WAIT_S, Session
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.pool import ToolPool

NOT_FOR_SUBAGENTS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Tools that speak with the person about the task as a whole."""

OWN = frozenset(
    {
        *("agent_id", "agent_type", "parent", "pool", "mode", "follows", "limits", "ctx", "system", "queue", "denials"),
        *("scope", "turn_scope", "interrupted", "other_model", "withdrawn", "drift_told", "unapplied", "before_task"),
        *("before_end", "background_wait_s", "_notes_told"),
    }
)
"""What of a session is of one agent; whatever else it has, now or later, all its agents share."""


def child_of(parent: Session, kind: AgentType, agent_id: str, other_model: str | None) -> Session:
    """A session for a sub-agent; it has no sub-agents of its own yet."""
    shared = {one.name: getattr(parent, one.name) for one in fields(Session) if one.init and one.name not in OWN}
    turns = [turns for turns in (kind.max_turns, parent.limits.turns) if turns is not None]
    intro = [{"type": "text", "text": kind.instruction}]
    return Session(
        **shared,
        agent_id=agent_id,
        agent_type=kind.name,
        parent=parent,
        pool=pool_of(parent.pool, kind),
        mode=kind.mode or parent.modes[0],
        follows=kind.mode is None,
        # The clock is that of the first agent's run; what runs behind it is ended with it.
        limits=replace(parent.limits, turns=min(turns, default=None), wall_s=None),
        ctx=replace(parent.ctx, agent_id=agent_id, known_files={}, failed_edits={}, resolved={}, agents=None),
        system=(*first_of(parent).system, *intro),
        queue=MessageQueue(),
        other_model=other_model,
        # It has only one answer to give, and hears of nothing that ends after it.
        background_wait_s=BACKGROUND_WAIT_S if parent.background_wait_s is None else parent.background_wait_s,
    )


def pool_of(parent: ToolPool, kind: AgentType) -> ToolPool:
    """Of the parent's tools, those that a type has."""
    left_out = {tool.name for tool in parent.tools if not kind.has(tool.name)}
    pool = without(parent, left_out, f"an agent of the type {kind.name} does not have it")
    return without(pool, NOT_FOR_SUBAGENTS, "a sub-agent does not speak with the person")


def without(pool: ToolPool, names: Iterable[str], reason: str) -> ToolPool:
    """The pool without some tools; whoever calls one is told the reason."""
    gone = {name: reason for name in names if pool.get(name) is not None}
    return replace(
        pool, tools=tuple(tool for tool in pool.tools if tool.name not in gone), absent={**pool.absent, **gone}
    )


def describe(types: Mapping[str, AgentType]) -> str:
    """The types, for the model that may name them."""
    lines = []
    for kind in types.values():
        has = "" if kind.tools is None else f" Tools: {', '.join(kind.tools)}."
        lines.append(f"  - {kind.name}: {kind.description}{has}")
    return "\n".join(lines)


def with_types(pool: ToolPool, types: Mapping[str, AgentType]) -> ToolPool:
    """The pool with the types in the description of Task."""
    text = prompt("tools/task").format(types=describe(types))
    return replace(
        pool, tools=tuple(replace(tool, description=text) if tool.name == "Task" else tool for tool in pool.tools)
    )


def depth_of(session: Session) -> int:
    """How many agents are above it."""
    return 0 if session.parent is None else 1 + depth_of(session.parent)


def first_of(session: Session) -> Session:
    """The agent that has none above it."""
    return session if session.parent is None else first_of(session.parent)
