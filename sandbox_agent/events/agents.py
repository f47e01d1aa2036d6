"""What happens to sub-agents. All else that a sub-agent does has its `agent_id`, and its parent's `parent_id`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event
from sandbox_agent.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStarted(Event):
    """A sub-agent gets a task: for the first time, or once more (`continued`). `call_id` is the call that started it.

    `agent_type` is the name of its type, `description` the task in a few words, `model` another model than the
    session's, None where it is the same. `mode` and `tools` are what it may use; those above it bind it as well.
    """

    type: ClassVar[str] = "agent_started"
    call_id: str
    agent_type: str
    description: str
    model: str | None
    mode: str
    tools: tuple[str, ...]
    background: bool = False
    continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFinished(Event):
    """A sub-agent's task ended. `status`, `text` and `error` are as those of `RunFinished`; `calls` counts its tool
    calls."""

    type: ClassVar[str] = "agent_finished"
    call_id: str
    status: str
    text: str
    turns: int
    calls: int
    usage: Usage
    duration_s: float
    error: str | None = None
