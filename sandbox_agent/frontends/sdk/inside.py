"""MCP servers inside the program: their messages go over the wire, and we are their client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.errors import ToolError
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.wire import NoAnswerError, Wire
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import JsonObject

HANDSHAKE_S = 30.0
"""For each of them."""


async def shake_hands(names: Sequence[str], wire: Wire, lines: Lines, say: Callable[[str], None]) -> list[Tool]:
    """The tools of these servers; one that fails is told, and left out."""
    found: list[Tool] = []
    if not names:
        return found
    module = await anyio.to_thread.run_sync(registry.load, "mcp", "inprocess")
    for name in names:
        server = module.InProcessServer(name, _sender(wire, name))
        try:
            with anyio.fail_after(HANDSHAKE_S):
                await server.start()
        except (ToolError, TimeoutError, module.ServerFaultError) as exc:
            why = str(exc) or f"it did not answer within {HANDSHAKE_S:g} s"
            lines.server(name, "failed", error=why)
            say(f"the MCP server {name} of the program cannot be used: {why}")
            continue
        for tool, why in server.left_out:
            say(f"the tool {tool} of the MCP server {name} is left out: {why}")
        listed = [
            {key: one[key] for key in ("name", "description", "annotations") if key in one} for one in server.listed
        ]
        lines.server(name, "connected", serverInfo=server.info, scope="dynamic", tools=listed)
        found += server.tools
    return found


def _sender(wire: Wire, name: str) -> Callable[[JsonObject], object]:
    async def send(message: JsonObject) -> JsonObject:
        request: JsonObject = {"subtype": "mcp_message", "server_name": name, "message": message}
        try:
            answer = await wire.ask(request)
        except NoAnswerError as exc:
            raise ToolError(f"The server {name} gave no answer: {exc}") from exc
        response = answer.get("mcp_response")
        return response if isinstance(response, dict) else {}

    return send
