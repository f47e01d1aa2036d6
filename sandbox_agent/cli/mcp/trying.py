"""`sandbox-agent mcp test`: the options. What they do is in `trial.py`."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.cli.faults import catch_sigterm

EPILOG = """\b
Examples:
  sandbox-agent mcp test
  sandbox-agent mcp test files --mcp-config .mcp.json
  sandbox-agent mcp test files --approve

\b
Exit codes: 0 all are there, with the tools that were approved; 1 one is not; 2 usage or configuration;
5 the sandbox is unavailable.
"""


@click.command(name="test", epilog=EPILOG, short_help="Start MCP servers where they run, and say what comes of them.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "-w",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder whose copy they see. Default: the current directory.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="A shipped policy or a policy file. Default: your own, else default.",
)
@click.option(
    "--mcp-config",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Servers in the form of .mcp.json, as a run would be given them. Repeatable.",
)
@click.option("--image", metavar="NAME", help="The container's image. Default: the policy's.")
@click.option("--approve", is_flag=True, help="Approve the tools of these servers as they are now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a server, unsanitised.")
def COMMAND(names: tuple[str, ...], **options: object) -> int:
    """Start the MCP servers of a run, or those named, in a session that is thrown away, and say what comes of them.

    Shown are the tools as the model and the rules name them, those that are left out, and what is not as approved.
    """
    catch_sigterm()
    code: int = registry.load("cli.mcp", "trial").try_servers(names, **options)
    return code
