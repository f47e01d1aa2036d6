"""Our MCP server with the tools that the public conformance suite calls, in place of those of a sandbox.

Usage: conformance_server.py; it says on stdout where it listens, and takes the token of the test.
"""

from __future__ import annotations

from typing import Any

import anyio

from sandbox_agent.cli.mcp.serving import answer
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.served_calls import Call
from sandbox_agent.mcp.listening import HOST, PATH, listening_socket, serve_http
from sandbox_agent.mcp.serve import Service
from sandbox_agent.types import Decision, JsonObject, Subject, ToolResult, Verdict

TOKEN = "a-token-of-this-test"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

TEXT: JsonObject = {"type": "text", "text": "words"}
IMAGE: JsonObject = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
DOCUMENT: JsonObject = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}
RESULTS = {
    "test_simple_text": ToolResult("words"),
    "test_image_content": ToolResult((IMAGE,)),
    "test_embedded_resource": ToolResult((DOCUMENT,)),
    "test_multiple_content_types": ToolResult((TEXT, IMAGE, DOCUMENT)),
    "test_error_handling": ToolResult("it failed", is_error=True),
    "test_elicitation": ToolResult("it was allowed"),
    "json_schema_2020_12_tool": ToolResult("words"),
}
SCHEMA: JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


class SuiteDesk:
    """Gives each call its result at once; one tool asks before that."""

    allow_apply = False
    default = None
    sessions: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.folders: dict[str, Any] = {}

    def definitions(self) -> list[JsonObject]:
        plain: JsonObject = {"type": "object", "properties": {}}
        return [
            {"name": name, "description": name, "input_schema": SCHEMA if name.startswith("json") else plain}
            for name in RESULTS
        ]

    async def submit(self, name: str, given: JsonObject, session_id: str | None, *, can_ask: bool) -> Call:
        call = Asking(name) if name == "test_elicitation" else Call(name, given, can_ask=can_ask)
        if name != "test_elicitation":
            call.end(RESULTS[name])
        return call

    def withdraw(self, call: Any) -> None: ...

    async def create(self, folder: str | None) -> Any: ...

    async def fork(self, session_id: str | None, step: int | None) -> Any: ...

    async def diff(self, session_id: str | None) -> Any: ...

    async def apply(self, session_id: str | None, paths: Any) -> Any: ...

    async def end(self, session_id: str) -> None: ...


class Asking(Call):
    """A call that ends with the answer to its question."""

    def __init__(self, name: str) -> None:
        super().__init__(name, {}, can_ask=True)
        why = Decision(Verdict.ASK, "the suite wants to be asked.")
        self.question = ApprovalRequest(self.use.id, name, Subject("it"), {}, why)

    def answer(self, given: ApprovalAnswer) -> None:
        super().answer(given)
        self.end(RESULTS[self.use.name])


async def main() -> None:
    """Serve until terminated."""
    sock = listening_socket(0)
    print(f"http://{HOST}:{sock.getsockname()[1]}{PATH}", flush=True)
    await serve_http(Service(SuiteDesk(), answer, str).server, sock, TOKEN)


if __name__ == "__main__":
    anyio.run(main)
