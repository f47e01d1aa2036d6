"""One tool call as the engine makes it, for tests of tools: parse, run, cap; errors come back as results."""

from __future__ import annotations

from sandbox_agent.errors import ToolError
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.tools.cap import cap
from sandbox_agent.tools.validation import parse_input
from sandbox_agent.types import JsonObject, ToolResult, ToolUse

HOST_FOLDER = "/home/someone/project"
"""The host path of the workspace, as far as the tools of `context` know."""


def context(sandbox: Sandbox) -> ToolContext:
    """A fresh context on a started sandbox."""
    return ToolContext(sandbox=sandbox, workspace_host=HOST_FOLDER)


async def call(tool: Tool, ctx: ToolContext, fields: JsonObject) -> ToolResult:
    """The result the model would be given; nobody is asked for permission."""
    parsed = parse_input(tool, ToolUse("toolu_1", tool.name, fields))
    if isinstance(parsed, str):
        return ToolResult(parsed, is_error=True)
    try:
        return cap(await tool.run(parsed, ctx), tool.max_result_chars)
    except ToolError as exc:
        return ToolResult(str(exc), is_error=True)


async def said(tool: Tool, ctx: ToolContext, **fields: object) -> str:
    """The text of a call that must succeed."""
    result = await call(tool, ctx, fields)
    assert isinstance(result.content, str), result.content
    assert not result.is_error, result.content
    return result.content


async def refused(tool: Tool, ctx: ToolContext, **fields: object) -> str:
    """The text of a call that must fail."""
    result = await call(tool, ctx, fields)
    assert isinstance(result.content, str), result.content
    assert result.is_error, result.content
    return result.content
