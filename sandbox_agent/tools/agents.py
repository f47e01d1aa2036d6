"""Sub-agents as tools see them: an agent starts others, and goes on with those it started, by `ToolContext.agents`.

The engine drives them (`engine.subagents`).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from sandbox_agent.types import Usage

UNHEARD = "it ended before it heard the last message, which it has when it goes on"


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What a new sub-agent is to do. `description` is the task in a few words, for people; `prompt` all it is told.

    `model` is another model for it, by its name or a short form of that; None is what its type says.
    """

    agent_type: str
    description: str
    prompt: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class AgentReport:
    """How a sub-agent's task ended. `status` and `error` are as those of a run; `text` is what it said last. `unheard`:
    a message came that it has not heard."""

    agent_id: str
    status: str
    text: str
    error: str | None
    turns: int
    calls: int
    usage: Usage
    duration_s: float
    unheard: bool = False


class AgentDesk(Protocol):
    """The sub-agents of one agent."""

    async def run(self, task: AgentTask) -> AgentReport:
        """Start a sub-agent and wait for its end.

        Raises:
            ToolError: there is no such type, or a limit allows no more; nothing was started.
            SandboxError: the sandbox is gone, and the run with it.
        """
        ...

    def launch(self, task: AgentTask) -> str:
        """Start a sub-agent in the background; returns its id. Its end comes through the queue.

        Raises:
            ToolError: as for `run`, or the session is ending.
        """
        ...

    async def go_on(self, agent_id: str, message: str) -> AgentReport | None:
        """Give a sub-agent of this agent a message: one that has ended goes on with it, and its next end is waited for.
        One that runs has it with its next turn; that returns None at once.

        Raises:
            ToolError: there is none of that id; the text names those there are.
            SandboxError: as for `run`.
        """
        ...

    def go_on_behind(self, agent_id: str, message: str) -> bool:
        """The same in the background. Whether the sub-agent had ended and goes on.

        Raises:
            ToolError: as for `go_on`, or the session is ending.
        """
        ...

    def at_work_for(self, call_id: str) -> str | None:
        """The sub-agent that this call has started, or gone on with; None if it has not."""
        ...

    def waiting(self) -> AbstractAsyncContextManager[None]:
        """In there the agent waits for others: it takes none of the places for sub-agents at work meanwhile."""
        ...
