"""What serves the calls of MCP clients, as this room sees it; `engine.served` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sandbox_agent.types import JsonObject, ToolResult


class Pending(Protocol):
    """A call at the desk, see `engine.served_calls.Call`."""

    question: Any
    result: ToolResult | None

    async def news(self) -> None:
        """Wait until there is a question or a result."""
        ...


class Desk(Protocol):
    """Who does the work, see `engine.served.Desk`."""

    allow_apply: bool
    folders: dict[str, Any]

    @property
    def default(self) -> str | None:
        """The session of calls that name none."""
        ...

    @property
    def sessions(self) -> Sequence[Any]:
        """Those that are open."""
        ...

    def definitions(self) -> list[JsonObject]:
        """The tools."""
        ...

    async def submit(self, name: str, given: JsonObject, session_id: str | None, *, can_ask: bool) -> Any:
        """Take a call."""
        ...

    def withdraw(self, call: Any) -> None:
        """End a call."""
        ...

    async def create(self, folder: str | None) -> Any:
        """Open a session."""
        ...

    async def fork(self, session_id: str | None, step: int | None) -> Any:
        """Open a session at a step of another one."""
        ...

    async def diff(self, session_id: str | None) -> Any:
        """What a session changed."""
        ...

    async def apply(self, session_id: str | None, paths: Sequence[str] | None) -> Any:
        """Bring it to the folder."""
        ...

    async def end(self, session_id: str) -> None:
        """End a session."""
        ...
