"""What clients put to a served session: calls and errands, and who waits for them.

`engine.served` takes them, `engine.serving` does them in turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, NobodyAnswersError
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxAgentError, ToolError
from sandbox_agent.types import JsonObject, ToolResult, ToolUse

ANSWER_S = 600.0
"""For a person to answer a question before the answer is no."""


class Call:
    """One call of a client. `question` is set while the person is asked about it, `result` when it has ended."""

    def __init__(self, name: str, given: JsonObject, *, can_ask: bool) -> None:
        self.use = ToolUse(f"call_{secrets.token_hex(12)}", name, given)
        self.can_ask = can_ask
        self.question: ApprovalRequest | None = None
        self.result: ToolResult | None = None
        self._answer: ApprovalAnswer | None = None
        self._news = anyio.Event()
        self._answered = anyio.Event()

    async def news(self) -> None:
        """Wait until there is a question or a result."""
        while self.result is None and self.question is None:
            await self._news.wait()

    def answer(self, answer: ApprovalAnswer) -> None:
        """What the person says to `question`."""
        self._answer, self.question = answer, None
        self._news = anyio.Event()
        self._answered.set()

    def end(self, result: ToolResult) -> None:
        """It has this result; only the first one counts."""
        if self.result is None:
            self.result = result
            self._tell()

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Put a question to the person.

        Raises:
            NobodyAnswersError: whoever made the call has nobody to ask.
        """
        if not self.can_ask:
            raise NobodyAnswersError
        self._answered = anyio.Event()
        self.question = request
        self._tell()
        with anyio.move_on_after(ANSWER_S):
            await self._answered.wait()
            assert self._answer is not None
            return self._answer
        self.question = None
        return ApprovalAnswer(False, reason=f"nobody answered within {ANSWER_S:g} s", by="person")

    def _tell(self) -> None:
        self._news.set()


@dataclass(slots=True, eq=False)
class Errand:
    """Something that is done with a session while none of its calls runs. `fault` is why it was not."""

    do: Callable[[Session], Awaitable[Any]]
    done: anyio.Event = field(default_factory=anyio.Event)
    found: Any = None
    fault: SandboxAgentError | None = field(default_factory=lambda: ToolError("the session ended before it was done"))


@dataclass(slots=True, eq=False)
class Served:
    """One open session. `calls` counts those that came."""

    id: str
    session: Session
    calls: int = 0
    closing: bool = False
    waiting: list[Call | Errand] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    woken: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    def put(self, one: Call | Errand) -> None:
        """Have it done when its turn comes."""
        self.waiting.append(one)
        self.woken.set()

    def close(self) -> None:
        """End it; what runs is interrupted."""
        self.closing = True
        self.session.interrupt()
        self.woken.set()
