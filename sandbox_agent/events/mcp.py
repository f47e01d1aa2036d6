"""What happens to MCP servers and, through them, to the tools of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerChanged(Event):
    """A server is there with its tools, could not be had, or has other tools now.

    `place` is "session", "own" or "host", `shown` its program or the host of its URL, `state` "connected" or "failed",
    with `error`. `tools` are named as the model knows them, `left_out` has {"tool", "reason"} for those that cannot be
    used. `pin` is the hash of all that the server says of its tools, `note` a line for the person.
    """

    type: ClassVar[str] = "mcp_server_changed"
    server: str
    place: str
    shown: str
    state: str
    tools: tuple[str, ...] = ()
    left_out: tuple[dict[str, str], ...] = ()
    protocol: str = ""
    version: str = ""
    pin: str = ""
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOffered(Event):
    """The tools that the model has from the next request on, in their order. `dropped` has {"tool", "source", "kept"}
    for those whose name another one had already."""

    type: ClassVar[str] = "tools_offered"
    tools: tuple[str, ...]
    dropped: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(Event):
    """How far a server is with a call, in its own words. Live only."""

    type: ClassVar[str] = "tool_progress"
    recorded: ClassVar[bool] = False
    call_id: str
    server: str
    progress: float
    total: float | None = None
    message: str | None = None
