"""Our client of MCP servers as a program, for the public conformance suite: it does what the scenarios need done.

Usage: conformance_client.py URL
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent.mcp.fleet import Fleet
from sandbox_agent.mcp.host import HostGround
from sandbox_agent.mcp.member import Told
from sandbox_agent.mcp.pins import Pins
from sandbox_agent.policy.servers import McpServer, Place, Transport
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext


async def agree(*asked: Any) -> dict[str, Any] | None:
    """A person who agrees and fills nothing in."""
    return {}


async def approve(server: McpServer, text: str) -> bool:
    """Nothing changes here."""
    return False


def tell(told: Told) -> None:
    """For whoever looks at the suite's output."""
    print(told.server.name, told.state, told.protocol, told.error, told.tools)


async def main(url: str) -> None:
    """Connect, and call every tool with a number for each field that it needs."""
    server = McpServer("suite", Transport.HTTP, Place.HOST, url=url, allow_private=True)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(
            [server],
            {},
            host=HostGround({}, Path(folder)),
            pins=Pins(Path(folder)),
            tell=tell,
            progressed=lambda *told: print(told),
            approve=approve,
            elicit=agree,
            renew=lambda: None,
        )
        async with anyio.create_task_group() as tasks:
            await fleet.start(tasks)
            ctx = ToolContext(sandbox=FakeSandbox(), workspace_host=folder)
            for tool in fleet.tools:
                given = dict.fromkeys((tool.input_schema or {}).get("required", ()), 3)
                print(await tool.run(tool.input_model.model_validate(given), ctx))
            await fleet.close()
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
