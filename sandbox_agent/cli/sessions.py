"""`sandbox-agent sessions`: what was run before, read from the records in the state folder."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import audit, complete, removing, resume, session_export, spent, steps
from sandbox_agent.cli.session_index import indexed_rows
from sandbox_agent.cli.session_rows import STATUSES, Filter, Since
from sandbox_agent.config import sessions_dir, state_dir
from sandbox_agent.engine.past import EVENTS_FILE, find_session, session_ids
from sandbox_agent.events import CheckFinished
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.words import shorten
from sandbox_agent.tape import read_tape

SHOWN_CHANGES = 20


@click.group(name="sessions", short_help="List past sessions, see the steps of one, audit its record.")
def COMMAND() -> None:
    """Past sessions; go on with one by `sandbox-agent resume ID`."""


COMMAND.add_command(audit.audit_session)
COMMAND.add_command(removing.remove)
COMMAND.add_command(resume.COMMAND)
COMMAND.add_command(session_export.export_session)


@COMMAND.command(
    name="list",
    epilog="\b\nExamples:\n  sandbox-agent sessions list -n 5\n"
    "  sandbox-agent sessions list --folder . --status failed --status unfinished --since 7d\n"
    "  sandbox-agent sessions list --json | jq -r 'select(.status != \"done\") | .session_id'\n",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Those on this folder, and on folders below it.",
)
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Those that ended so. Repeatable."
)
@click.option("--since", type=Since(), help="Those begun since a day, or so long ago (90m, 12h, 7d, 2w).")
@click.option("--text", metavar="TEXT", help="Those whose task has this in it, in any case.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_sessions(
    limit: int, folder: Path | None, statuses: tuple[str, ...], since: float | None, text: str | None, as_json: bool
) -> int:
    """List sessions, newest first."""
    wanted = Filter(folder, statuses, since, text)
    sessions = sessions_dir()
    with closing(indexed_rows(state_dir(), sessions, session_ids(sessions))) as rows:
        for row in islice(filter(wanted.wants, rows), limit):
            if as_json:
                click.echo(json.dumps(asdict(row)))
                continue
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started_unix_s))
            click.echo(f"{row.session_id}  {when}  {row.status:<11}  {sanitise(row.workspace)}")
            if row.forked_from is not None:
                click.echo(f"    fork of {sanitise(row.forked_from)} at step {row.forked_step}")
            click.echo(f"    {shorten(sanitise(row.task), 100)}")
    return 0


@COMMAND.command(
    name="show",
    epilog="\b\nExamples:\n  sandbox-agent sessions show last\n  sandbox-agent sessions show last --json | jq .step\n"
    "  sandbox-agent sessions show last --costs\n",
    short_help="Show the steps of a session with the files each changed, and what its runs used.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--costs", is_flag=True, help="What each request and call used: tokens, money, CPU, memory, bytes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a step (or a request and call), unsanitised.")
def show(session_id: str, costs: bool, as_json: bool) -> int:
    """The steps of session ID ("last" is the newest): what made each, the files it changed, and what each run used.

    `sandbox-agent undo ID --to STEP` goes back to one, `sandbox-agent fork ID --at STEP` begins a new session at it.
    """
    sessions = sessions_dir()
    found = find_session(sessions, session_id)
    entries = read_tape(sessions / found / EVENTS_FILE).entries
    if costs:
        registry.load("cli", "costs").show(entries, as_json=as_json)
        return 0
    rows = steps.rows(entries)
    if not rows and not as_json:
        click.echo("There are no steps: nothing was checkpointed in this session.", err=True)
    for row in rows:
        if as_json:
            click.echo(json.dumps(row.as_json()))
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.time_unix_s))
        click.echo(f"step {row.event.step:<4} {when}  {shorten(sanitise(row.cause), 100)}")
        for change in row.event.changed[:SHOWN_CHANGES]:
            kind = "links" if change.get("kind") == "group" else sanitise(str(change.get("kind")))
            click.echo(f"    {kind:<9} {sanitise(str(change.get('path'))) or 'the workspace folder'}")
        if row.event.changed_count > SHOWN_CHANGES:
            click.echo(f"    and {row.event.changed_count - SHOWN_CHANGES:,} more")
    if not as_json:
        for check in (entry.event for entry in entries if isinstance(entry.event, CheckFinished)):
            click.echo(f"check     {sanitise(check.command)}: {sanitise(check.outcome)}")
        _show_spent(spent.runs(entries))
    return 0


def _show_spent(runs: Sequence[spent.Spent]) -> None:
    for number, run in enumerate(runs, start=1):
        click.echo(f"run {number:<5} {run.line()}")
    if len(runs) > 1:
        click.echo(f"in all    {spent.in_all(runs).line()}")
