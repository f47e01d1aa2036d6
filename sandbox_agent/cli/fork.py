"""`sandbox-agent fork ID --at STEP`: a second session that begins where the first one was at a step."""

from __future__ import annotations

import json
import shlex

import click

from sandbox_agent.cli import complete
from sandbox_agent.engine.forking import fork
from sandbox_agent.frontends.sanitise import sanitise


@click.command(
    name="fork",
    epilog="\b\nExamples:\n  sandbox-agent sessions show last\n  sandbox-agent fork last --at 3\n",
    short_help="Begin a new session at a step of another one.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--at", "step", metavar="STEP", type=click.IntRange(min=0), required=True, help="The step to begin at.")
@click.option("--json", "as_json", is_flag=True, help="The new session as a JSON object.")
def COMMAND(session_id: str, step: int, as_json: bool) -> int:
    """Make a session that has the conversation and the tree of session ID ("last" is the newest) as of a step.

    Nothing is copied now; both sessions go on independently.
    """
    made = fork(session_id, step)
    if as_json:
        click.echo(json.dumps({"session_id": made.session_id, "workspace": str(made.host), "at": step}))
        return 0
    click.echo(f"Forked: {made.session_id}")
    folder = sanitise(shlex.quote(str(made.host)))
    click.echo(f"Go on: sandbox-agent run --resume {made.session_id} -w {folder} TASK")
    return 0
