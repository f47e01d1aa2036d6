"""A fleet of MCP servers on this machine, most of them hostile, with all that it tells."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.fleet import Fleet
from sandbox_agent.mcp.host import HostGround
from sandbox_agent.mcp.member import Told
from sandbox_agent.mcp.pins import Pins
from sandbox_agent.policy.servers import McpServer, Place, Transport
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import JsonObject

PROGRAM = Path(__file__).parent.parent / "data" / "hostile_mcp.py"


def hostile(*modes: str, name: str = "evil", **fields: Any) -> McpServer:
    """A server of these modes (see tests/data/hostile_mcp.py)."""
    command = (sys.executable, "-S", "-E", str(PROGRAM), *modes)
    options: dict[str, Any] = {"startup_timeout_s": 10.0, "call_timeout_s": 10.0, **fields}
    return McpServer(name=name, transport=Transport.STDIO, place=Place.HOST, command=command, **options)


@dataclass(slots=True)
class Ground:
    """What a fleet told, and the answers it gets. `processes` are the programs that were started."""

    fleet: Fleet
    tasks: TaskGroup
    told: list[Told] = field(default_factory=list)
    progress: list[tuple[float, str | None]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    elicited: list[tuple[str, str]] = field(default_factory=list)
    renewed: int = 0
    approves: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)

    def tool(self, name: str) -> Tool:
        """By its name here."""
        return next(tool for tool in self.fleet.tools if tool.name == name)

    async def call(self, name: str = "mcp__evil__echo", **arguments: Any) -> str:
        """What the model gets to read of a call: a result's text, or an error's behind ERROR."""
        tool = self.tool(name)
        try:
            with anyio.fail_after(30):
                value = tool.input_model.model_validate(arguments)
                result = await tool.run(value, ToolContext(sandbox=FakeSandbox(), workspace_host="/home/me/project"))
        except ToolError as exc:
            return f"ERROR {exc}"
        said = result.content if isinstance(result.content, str) else json.dumps(result.content)
        return f"ERROR {said}" if result.is_error else said

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for what is told next, until this holds."""
        with anyio.fail_after(20):
            while not true():
                self.changed = anyio.Event()
                await self.changed.wait()


@asynccontextmanager
async def fleet_of(
    servers: Sequence[McpServer],
    folder: Path,
    *,
    approves: bool = False,
    elicit: Callable[[str, str, JsonObject], Awaitable[JsonObject | None]] | None = None,
) -> AsyncIterator[Ground]:
    """A started fleet, closed on the way out, which takes under five seconds."""
    ground: Ground

    def noted() -> None:
        ground.changed.set()

    def tell(told: Told) -> None:
        ground.told.append(told)
        noted()

    def progressed(server: str, call: str, progress: float, total: float | None, message: str | None) -> None:
        ground.progress.append((progress, message))

    async def approve(server: McpServer, text: str) -> bool:
        ground.asked.append(text)
        noted()
        return ground.approves

    def renew() -> None:
        ground.renewed += 1
        noted()

    fleet = Fleet(
        servers,
        {},
        host=HostGround({name: os.environ[name] for name in ("PATH", "HOME")}, folder),
        pins=Pins(folder),
        tell=tell,
        progressed=progressed,
        approve=approve,
        elicit=elicit,
        renew=renew,
    )
    async with anyio.create_task_group() as tasks:
        ground = Ground(fleet, tasks, approves=approves)
        try:
            with anyio.fail_after(30):
                await fleet.start(tasks)
            yield ground
        finally:
            with anyio.fail_after(5, shield=True):
                await fleet.close()
            tasks.cancel_scope.cancel()
