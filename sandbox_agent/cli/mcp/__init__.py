"""`sandbox-agent mcp`: servers of other people's tools, and ours for other people's agents."""

from __future__ import annotations

import click

from sandbox_agent.cli.lazy import LazyGroup

COMMANDS = {
    "serve": ("serve", "Give any MCP client the tools of a hardened session."),
    "list": ("listing", "List the MCP servers of a run, and where each would run."),
    "test": ("trying", "Start MCP servers where they run, and say what comes of them."),
}
"""Name to module and one line of help, so that listing the commands imports none of them."""


class McpGroup(LazyGroup):
    """The commands of the table, found in `sandbox_agent.cli.mcp`."""

    table = COMMANDS
    room = "cli.mcp"


@click.group(
    name="mcp",
    cls=McpGroup,
    epilog="\b\nExamples:\n  sandbox-agent mcp list\n  sandbox-agent mcp test files\n"
    "  claude mcp add sandbox -- sandbox-agent mcp serve -w .\n",
    short_help="Check MCP servers, or be one.",
)
def COMMAND() -> None:
    """Check the MCP servers that your policy names, or give our tools to another agent as an MCP server."""
