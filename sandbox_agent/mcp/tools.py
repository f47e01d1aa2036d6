"""A server's tools as ours: named, described, checked and judged like any other, and run by asking the server."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import anyio
import mcp_types
from pydantic import RootModel

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.connection import Connection
from sandbox_agent.mcp.incoming import input_schema_of
from sandbox_agent.mcp.names import tool_name
from sandbox_agent.mcp.results import clean, result_of
from sandbox_agent.mcp.schemas import UnusableSchemaError, adapted, fingerprint, input_model, parts_of
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.tools.base import Tool, ToolContext, build_tool, current_call
from sandbox_agent.types import JsonObject, Subject, ToolResult

MAX_DESCRIPTION_CHARS = 4_000
REST_ROOM = "/tmp/sandbox-agent"
MAX_REST_CHARS = 4_000_000
MAX_LIST_PARTS = 20_000
"""Objects and lists in the schemas of all tools of a server together."""

PROGRESS_EVERY_S = 0.2
_SUMMARY_CHARS = 200

Progressed = Callable[[str, str, float, float | None, str | None], None]
"""Server, call, how far, of how much, and in what words."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What comes of a server's list: tools, those left out with the reason, and what the list is recognised by."""

    tools: dict[str, Tool]
    """By the server's own names."""
    left_out: tuple[tuple[str, str], ...]
    pins: dict[str, str]
    """The server's own name of each tool to the hash of all that it says of it."""


def offer(
    connection: Connection,
    listed: Sequence[mcp_types.Tool],
    unusable: Sequence[tuple[str, str]],
    progressed: Progressed,
) -> Offer:
    """The tools that a list comes to, of which `unusable` are left out already. One that cannot be used is left out;
    nothing that a server says is an error. It may take a second: call it in a thread."""
    server = connection.server
    tools: dict[str, Tool] = {}
    left_out = [(clean(name)[:80], clean(reason)) for name, reason in unusable if server.offers(name)]
    pins: dict[str, str] = {}
    parts = 0
    for one in listed:
        shown = clean(one.name)[:80]
        if not server.offers(one.name):
            continue
        if one.name in pins:
            left_out.append((shown, "the server names it twice"))
            continue
        pins[one.name] = pin_of(one)
        parts += parts_of(input_schema_of(one))
        try:
            if parts > MAX_LIST_PARTS:
                raise UnusableSchemaError(f"the schemas of the server's tools have over {MAX_LIST_PARTS:,} parts")
            tool = _tool(connection, one, progressed)
        except UnusableSchemaError as exc:
            left_out.append((shown, clean(str(exc))))
            continue
        tools[one.name] = tool
    return Offer(tools, tuple(left_out), pins)


def pin_of(tool: mcp_types.Tool) -> str:
    """The hash of all that a server says of a tool."""
    whole = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"icons"})
    return hashlib.sha256(fingerprint(whole).encode("utf-8", "surrogatepass")).hexdigest()


def list_pin(pins: dict[str, str]) -> str:
    """The hash of a whole list of tools, whatever its order."""
    return hashlib.sha256(fingerprint(pins).encode()).hexdigest()


def _tool(connection: Connection, tool: mcp_types.Tool, progressed: Progressed) -> Tool:
    server = connection.server
    schema = adapted(input_schema_of(tool))
    name = tool_name(server.name, tool.name)
    hints = tool.annotations
    only_reads = bool(server.trust_hints and hints is not None and hints.read_only_hint is True)

    async def run(value: RootModel[dict[str, Any]], ctx: ToolContext) -> ToolResult:
        call_id = current_call()
        next_s = 0.0

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            nonlocal next_s
            if anyio.current_time() < next_s:
                return
            next_s = anyio.current_time() + PROGRESS_EVERY_S
            words = None if message is None else clean(message)[:_SUMMARY_CHARS]
            progressed(server.name, call_id, progress, total, words)

        async with nullcontext() if only_reads else connection.turn:
            answer = await connection.call(tool.name, sendable(value.root), heard)
        return await shortened(result_of(answer), server, ctx)

    def subject(value: RootModel[dict[str, Any]], ctx: ToolContext) -> Subject:
        text = json.dumps(value.root, ensure_ascii=False, default=str)
        return Subject(summary=text if len(text) <= _SUMMARY_CHARS else text[:_SUMMARY_CHARS] + "...")

    return build_tool(
        name=name,
        description=_description(server, tool),
        input_model=input_model(schema),
        run=run,
        read_only=only_reads,
        # What it changes elsewhere comes in the order of its own calls; nobody else's calls wait for them.
        parallel_safe=only_reads or server.apart,
        apart=server.apart,
        subject=subject,
        # The connection has deadlines of its own, which stand still while a person is asked.
        timeout_s=None,
        max_result_chars=server.max_result_chars + 1_000,
        source=f"mcp:{server.name}",
        input_schema=schema,
    )


def sendable(given: JsonObject) -> JsonObject:
    """An input as it can be written: a model may send halves of surrogate pairs, which would cost the connection.

    Raises:
        ToolError: it has a number that is none in JSON.
    """
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except ValueError as exc:
        raise ToolError("There is no JSON for this input: it has NaN or Infinity as a number.") from exc
    whole: JsonObject = given if text.isascii() else json.loads(text.encode("utf-8", "replace"))
    return whole


def _description(server: McpServer, tool: mcp_types.Tool) -> str:
    text = clean(tool.description or "").strip()
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = f"{text[:MAX_DESCRIPTION_CHARS]} [... {len(text):,} characters in all]"
    return text or f"The tool {clean(tool.name)} of the server {server.name}, which says nothing of it."


async def shortened(result: ToolResult, server: McpServer, ctx: ToolContext) -> ToolResult:
    """A result of the size that the server's entry allows; all of a longer one is in a file that Read can open."""
    blocks = [{"type": "text", "text": result.content}] if isinstance(result.content, str) else list(result.content)
    whole = "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
    if len(whole) <= server.max_result_chars:
        return result
    path = f"{REST_ROOM}/mcp-{secrets.token_hex(8)}.txt"
    kept = whole[:MAX_REST_CHARS]
    try:
        await ctx.sandbox.replace_file(path, kept.encode("utf-8", "replace"), expected_sha256=None)
        cut = "" if len(kept) == len(whole) else f" (its first {len(kept):,} characters)"
        where = f"All of it is in {path}{cut}; Read and Grep open it."
    except OSError as exc:
        where = f"The rest could not be kept ({exc.strerror or exc})."
    note = f"\n[... shown are {server.max_result_chars:,} of {len(whole):,} characters. {where}]"
    text: JsonObject = {"type": "text", "text": whole[: server.max_result_chars] + note}
    others = [block for block in blocks if block.get("type") != "text"]
    content: str | tuple[JsonObject, ...] = str(text["text"]) if not others else (text, *others)
    return replace(result, content=content, meta={**result.meta, "truncated": True})
