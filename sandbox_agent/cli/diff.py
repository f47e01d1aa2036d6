"""`sandbox-agent diff ID`: what a session changed in its copy and did not bring to the folder."""

from __future__ import annotations

import json
import sys

import click

from sandbox_agent.cli import complete
from sandbox_agent.cli.kept import open_kept
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends import review
from sandbox_agent.frontends.drift import drift_line
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.workspaces.ledger import interrupted


@click.command(
    name="diff",
    epilog="\b\nExamples:\n  sandbox-agent diff last\n  sandbox-agent diff last src/ '*.md'\n"
    "  sandbox-agent diff last --json | jq -r .path\n",
    short_help="Show what a session changed and did not apply.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.argument("paths", metavar="[PATH|PATTERN]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a changed path, unsanitised.")
def COMMAND(session_id: str, paths: tuple[str, ...], as_json: bool) -> int:
    """Show the kept changes of session ID ("last" is the newest): all, or those named."""
    with open_kept(session_id) as kept:
        changes = kept.changes
        if interrupted(kept.folder):
            click.echo(f"An apply was interrupted; `sandbox-agent apply {kept.session_id}` finishes it.", err=True)
        commits, drift = kept.workspace.commits, kept.drift
    drifted = {one.path: one.kind for one in drift}
    if drift:
        click.echo(f"! {drift_line([one._asdict() for one in drift], len(drift))}", err=True)
    if paths:
        wanted = {path for word in paths for path in review.covered(changes, word)}
        if not wanted:
            raise ConfigError(f"session {kept.session_id} has no change that fits {' '.join(paths)}")
        changes = tuple(change for change in changes if change["path"] in wanted)
    if as_json:
        for change in changes:
            click.echo(json.dumps(change | {"drifted": drifted.get(str(change["path"]))}))
    elif changes:
        review.show(Printer(make_console(sys.stdout)), changes, max_lines=None, drifted=drifted)
    else:
        click.echo("Nothing is waiting to be applied.", err=True)
    if commits:
        click.echo(f"Commits made inside: sandbox-agent export {kept.session_id} --bundle FILE", err=True)
    return 0
