"""`sandbox-agent diff ID`: what a session changed in its copy and did not bring to the folder."""

from __future__ import annotations

import json
import sys

import click

from sandbox_agent.cli.kept import open_kept
from sandbox_agent.frontends import review
from sandbox_agent.frontends.printer import Printer, make_console


@click.command(
    name="diff",
    epilog="\b\nExamples:\n  sandbox-agent diff last\n  sandbox-agent diff last --json | jq -r .path\n",
    short_help="Show what a session changed and did not apply.",
)
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a changed path, unsanitised.")
def COMMAND(session_id: str, as_json: bool) -> int:
    """Show the kept changes of session ID ("last" is the newest)."""
    kept = open_kept(session_id)
    if as_json:
        for change in kept.changes:
            click.echo(json.dumps(change))
    elif kept.changes:
        review.show(Printer(make_console(sys.stdout)), kept.changes, max_lines=None)
    else:
        click.echo("Nothing is waiting to be applied.", err=True)
    return 0
