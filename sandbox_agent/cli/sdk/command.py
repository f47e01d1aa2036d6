"""The flags of `sandbox-agent-sdk`. What they mean is in `options.py`, imported only when a session really runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sandbox_agent import __version__, registry

EPILOG = """\b
In a program:
  options = ClaudeAgentOptions(cli_path="/path/to/sandbox-agent-sdk", cwd="project")
Options of sandbox-agent itself go through extra_args:
  ClaudeAgentOptions(..., extra_args={"policy": "readonly", "apply": "never"})
docs/sdk.md says what works, what is different, and what is refused.
"""

_SILENT = (
    *("output-format", "input-format", "betas", "task-budget"),
    *("thinking", "max-thinking-tokens", "thinking-display", "effort"),
)
"""Taken, and without effect but for a line on stderr where that matters."""

_REFUSED = ("add-dir", "plugin-dir", "resume-session-at", "resume-drops-turn", "session-id")


def _option(*names: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(*names, **more)


def _hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    for name in (*_SILENT, *_REFUSED):
        function = click.option(f"--{name}", multiple=True, hidden=True)(function)
    for name in ("verbose", "session-mirror", "fork-session", "strict-mcp-config"):
        function = click.option(f"--{name}", is_flag=True, hidden=True)(function)
    return function


@click.command(
    name="sandbox-agent-sdk",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@_option("--system-prompt", metavar="TEXT", help="In place of the usual instruction; empty: none of it.")
@_option("--system-prompt-file", metavar="FILE", help="The same, from a file.")
@_option("--append-system-prompt", metavar="TEXT", help="Behind the usual instruction.")
@_option("--tools", metavar="LIST", help="The built-in tools there are to be; empty: none, default: all.")
@_option("--allowedTools", "allowed", metavar="RULES", multiple=True, help="Rules with commas between: allowed.")
@_option("--disallowedTools", "disallowed", metavar="RULES", multiple=True, help="The same: denied.")
@_option("--max-turns", metavar="N", type=click.IntRange(min=1), help="At most so many model requests a prompt.")
@_option("--max-budget-usd", metavar="X", type=click.FloatRange(min=0, min_open=True), help="At most so much a prompt.")
@_option("--model", metavar="NAME", help="A model's name, or script:FILE. Also SANDBOX_AGENT_MODEL.")
@_option("--fallback-model", metavar="NAME", help="Asked where the model is overloaded, unknown, or refuses.")
@_option("--permission-mode", metavar="MODE", help="default, acceptEdits, plan, dontAsk or bypassPermissions.")
@_option("--permission-prompt-tool", metavar="stdio", help="The program answers permission questions.")
@_option("--continue", "resume_last", is_flag=True, help="Go on with the newest session of this folder.")
@_option("--resume", metavar="ID", help="Go on with this session.")
@_option("--settings", metavar="JSON|FILE", help="Permission rules and the mode are taken from it.")
@_option("--setting-sources", metavar="LIST", help="With project: the model is given the folder's instructions.")
@_option("--mcp-config", metavar="JSON|FILE", multiple=True, help="MCP servers, those inside the program among them.")
@_option("--include-partial-messages", "partial", is_flag=True, help="Pieces of answers as they stream.")
@_option("--include-hook-events", "hook_events", is_flag=True, help="A line for each hook that ran.")
@_option("--json-schema", metavar="JSON", help="The answer has this form.")
@_option("--policy", metavar="NAME|FILE", help="sandbox-agent: the policy.")
@_option("--image", metavar="NAME", help="sandbox-agent: the container's image.")
@_option(
    "--workspace-mode",
    type=click.Choice(["auto", "overlay", "copy", "bind"]),
    default="auto",
    help="sandbox-agent: how the folder comes into the container.",
)
@_option(
    "--apply",
    type=click.Choice(["consent", "always", "never"]),
    default="consent",
    help="sandbox-agent: whether changes go to the folder after each result. Default: where the program consented.",
)
@_hidden
@click.version_option(__version__, "-v", "--version", prog_name="sandbox-agent-sdk", message="%(prog)s %(version)s")
def COMMAND(**flags: Any) -> int:
    """Serve a program built on claude-agent-sdk over the standard streams; the current folder is worked on.

    Every tool call runs in a container. Exit codes: 0, or 1 where the last result was an error, 2 usage, 143 and 130
    ended by a signal.
    """
    code: int = registry.load("cli.sdk", "serving").serve(flags)
    return code
