"""`sandbox-agent policy check`: whether files are policies, and a line for all that is wrong in them."""

from __future__ import annotations

import json

import click

from sandbox_agent.errors import PolicyError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.load import load_policy

WRONG = 2


@click.command(
    name="check",
    epilog="\b\nExamples:\n  sandbox-agent policy check ./my-policy.yaml\n"
    "  sandbox-agent policy check --json policies/*.yaml | jq .ok\n"
    "\b\nExit codes: 0 every file is right, 2 something is wrong.\n",
    short_help="Say whether policy files are right, and what is wrong where.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(files: tuple[str, ...], as_json: bool) -> int:
    """Check each FILE (or shipped policy by name): its shape, its rules and their examples."""
    errors = []
    for file in files:
        try:
            load_policy(file)
        except PolicyError as exc:
            errors.append(str(exc))
    if as_json:
        click.echo(json.dumps({"ok": not errors, "errors": errors}, indent=1))
    else:
        for line in errors:
            click.echo(sanitise(line))
    return WRONG if errors else 0
