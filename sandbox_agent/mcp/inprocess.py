"""An MCP server inside the program that drives us: its messages go over the program's own connection, and its tools
are the program's: they run there, outside of every container.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import mcp_types
from pydantic import RootModel, ValidationError

from sandbox_agent import __version__
from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.names import tool_name
from sandbox_agent.mcp.results import clean, result_of
from sandbox_agent.mcp.schemas import UnusableSchemaError, adapted, input_model
from sandbox_agent.tools.base import Tool, ToolContext, build_tool
from sandbox_agent.types import JsonObject, Subject, ToolResult

PROTOCOL = "2025-11-25"
MAX_PAGES = 20
MAX_DESCRIPTION_CHARS = 4_000
MAX_RESULT_CHARS = 100_000
CALL_TIMEOUT_S = 600.0
_SUMMARY_CHARS = 300

Send = Callable[[JsonObject], Awaitable[JsonObject]]
"""Takes a JSON-RPC message to the server and gives its response; raises what the connection raises."""


class ServerFaultError(Exception):
    """The server said that it failed; the text is its own."""


class InProcessServer:
    """One server. `start` first; `tools` has what it offers, `left_out` what cannot be used, with the reason."""

    def __init__(self, name: str, send: Send) -> None:
        self.name = name
        self.info: JsonObject = {}
        self.tools: list[Tool] = []
        self.listed: list[JsonObject] = []
        self.left_out: list[tuple[str, str]] = []
        self._send = send
        self._ids = count(1)

    async def start(self) -> None:
        """Shake hands and get its tools.

        Raises:
            ServerFaultError: it refused.
        """
        client = {"name": "sandbox-agent", "version": __version__}
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        answer = await self._request("initialize", hello)
        self.info = answer.get("serverInfo") or {}
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        cursor: object = None
        for _ in range(MAX_PAGES):
            page = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            for entry in page.get("tools") or ():
                self._add(entry)
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def _request(self, method: str, params: JsonObject) -> JsonObject:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        response = await self._send(message)
        error, result = response.get("error"), response.get("result")
        if isinstance(error, dict):
            raise ServerFaultError(clean(str(error.get("message") or error))[:_SUMMARY_CHARS])
        if not isinstance(result, dict):
            raise ServerFaultError(f"{method} was answered without a result")
        return result

    def _add(self, entry: Any) -> None:
        name = str(entry.get("name")) if isinstance(entry, dict) else ""
        try:
            self.tools.append(self._tool(name, entry))
            self.listed.append(entry)
        except (UnusableSchemaError, ValueError, AttributeError) as exc:
            self.left_out.append((name, str(exc)))

    def _tool(self, name: str, entry: JsonObject) -> Tool:
        schema = adapted(entry.get("inputSchema"))
        text = clean(str(entry.get("description") or "")).strip()[:MAX_DESCRIPTION_CHARS]

        async def run(value: RootModel[dict[str, Any]], ctx: ToolContext) -> ToolResult:
            try:
                answer = await self._request("tools/call", {"name": name, "arguments": value.root})
                return result_of(mcp_types.CallToolResult.model_validate(answer))
            except ValidationError as exc:
                raise ToolError(f"The server {self.name} answered with what is no result of a tool.") from exc
            except ServerFaultError as exc:
                raise ToolError(f"The server {self.name} failed: {exc}") from exc

        return build_tool(
            name=tool_name(self.name, name),
            description=text or f"The tool {clean(name)} of the server {self.name}, which says nothing of it.",
            input_model=input_model(schema),
            run=run,
            subject=_subject,
            timeout_s=CALL_TIMEOUT_S,
            max_result_chars=MAX_RESULT_CHARS,
            source=f"mcp:{self.name}",
            input_schema=schema,
        )


def _subject(value: RootModel[dict[str, Any]], ctx: ToolContext) -> Subject:
    text = json.dumps(value.root, ensure_ascii=False, default=str)
    return Subject(summary=text if len(text) <= _SUMMARY_CHARS else text[:_SUMMARY_CHARS] + "...")
