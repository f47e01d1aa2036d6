"""`sandbox-agent mcp serve`: the options. What they do is in `serving.py`."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.types import Mode

EPILOG = """\b
Examples:
  claude mcp add sandbox -- sandbox-agent mcp serve -w .
  sandbox-agent mcp serve -w ./project --policy readonly
  SANDBOX_AGENT_MCP_TOKEN=... sandbox-agent mcp serve -w . --http 8931

\b
Exit codes: 0 the client is gone, 2 usage or configuration, 5 the sandbox is unavailable,
130 and 143 ended by a signal.
"""


@click.command(name="serve", epilog=EPILOG, short_help="Give any MCP client the tools of a hardened session.")
@click.option(
    "-w",
    "--workspace",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder to work on; given again, one more that a client may open. Default: the current directory.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="A shipped policy or a policy file. Default: your own, else default.",
)
@click.option(
    "--mode", type=click.Choice([mode.value for mode in Mode]), help="Permission mode. Default: the policy's."
)
@click.option("--allow", metavar="RULE", multiple=True, help='Allow what fits, as "Bash(pytest:*)". Repeatable.')
@click.option("--deny", metavar="RULE", multiple=True, help="Deny what fits; wins over every allow. Repeatable.")
@click.option("--image", metavar="NAME", help="The container's image. Default: the policy's.")
@click.option(
    "--workspace-mode",
    type=click.Choice(["auto", "overlay", "copy", "bind"]),
    default="auto",
    show_default=True,
    help="overlay, copy: your folder gets only what you apply. bind: change it directly. auto: overlay, else copy.",
)
@click.option("--allow-apply", is_flag=True, help="Let a client apply changes to your folder. Default: only you can.")
@click.option(
    "--http",
    "port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve HTTP on 127.0.0.1 in place of the standard streams; 0 takes a free port. Clients need the token of "
    "SANDBOX_AGENT_MCP_TOKEN, or the one that is printed.",
)
def COMMAND(folders: tuple[Path, ...], port: int | None, allow_apply: bool, **options: object) -> int:
    """Give any MCP client Bash, Read, Write, Edit, Grep and Glob of a hardened session, on the standard streams.

    What would be asked is asked through the client where it can do that, and denied otherwise. Nothing reaches your
    folder before you apply it: see `sandbox-agent diff last` and `sandbox-agent apply last`.
    """
    catch_sigterm()
    code: int = registry.load("cli.mcp", "serving").serve(
        folders or (Path("."),), port=port, allow_apply=allow_apply, **options
    )
    return code
