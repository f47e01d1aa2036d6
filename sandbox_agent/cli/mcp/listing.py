"""`sandbox-agent mcp list`: the servers of a run, without starting any."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.config import RunConfig, state_dir
from sandbox_agent.engine.open import policy_of
from sandbox_agent.engine.servers import servers_named
from sandbox_agent.errors import PolicyError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.servers import McpServer, with_environment
from sandbox_agent.types import JsonObject

_PLACES = {
    "session": "in the session's container",
    "own": "in a container of its own",
    "host": "on this machine, or behind a URL: in no container",
}


@click.command(
    name="list",
    epilog="\b\nExamples:\n  sandbox-agent mcp list\n  sandbox-agent mcp list --mcp-config .mcp.json\n"
    "  sandbox-agent mcp list --json | jq -r .name\n",
    short_help="List the MCP servers of a run, and where each would run.",
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
@click.option("--json", "as_json", is_flag=True, help="One JSON object a server, unsanitised.")
def COMMAND(policy: str | None, mcp_config: tuple[Path, ...], as_json: bool) -> int:
    """List the MCP servers that the policy and the files name. Nothing is started."""
    # None of the policy's files may lie in the folder that is worked on; here there is none.
    servers = servers_named(policy_of(RunConfig(workspace=state_dir(), policy=policy)), mcp_config, Path())
    if not servers and not as_json:
        click.echo("No MCP servers. Name some in the policy (mcp: servers:), or in a file: --mcp-config FILE", err=True)
    pins = registry.load("mcp", "pins").Pins(state_dir())
    for server in servers:
        row = _row(server, pins)
        click.echo(json.dumps(row) if as_json else _lines(server, row))
    return 0


def _row(server: McpServer, pins: Any) -> JsonObject:
    problem, whole = None, server
    try:
        whole = with_environment(server, os.environ)  # what is approved goes by the command or URL that it comes to
    except PolicyError as exc:
        problem = str(exc)
    approved = pins.approved(whole)
    return {
        "name": server.name,
        "place": server.place.value,
        "transport": server.transport.value,
        "command": list(server.command),
        "url": server.shown if server.url is not None else None,
        "image": server.image,
        "workspace": server.workspace,
        "tools": list(server.tools),
        "rule": f"mcp__{registry.load('mcp', 'names').server_part(server.name)}__*",
        "trust_hints": server.trust_hints,
        "approved_tools": sorted(approved) if approved is not None else None,
        "location": server.location,
        "problem": problem,
    }


def _lines(server: McpServer, row: JsonObject) -> str:
    what = server.shown if server.url is not None else " ".join(server.command)
    known = row["approved_tools"]
    pins = "never used: what its tools are is remembered at the first use"
    if known is not None:
        pins = f"{len(known)} {'tool' if len(known) == 1 else 'tools'} approved"
    lines = [
        f"{server.name}  {server.place.value}: {_PLACES[server.place.value]}",
        f"    {what[:200]}  ({server.location})",
        f"    {pins}; in rules {row['rule']}",
    ]
    if row["problem"] is not None:
        lines.append(f"    ! {row['problem']}")
    return "\n".join(sanitise(line) for line in lines)
