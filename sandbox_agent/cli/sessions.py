"""`sandbox-agent sessions`: what was run before, read from the records in the state folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import click

from sandbox_agent.cli import audit, removing, spent, steps
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.past import EVENTS_FILE, find_session, session_ids
from sandbox_agent.errors import RecordError
from sandbox_agent.events import ProjectInstructions, RunFinished, SessionStarted, UserMessage
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.words import shorten
from sandbox_agent.tape import read_tape
from sandbox_agent.types import Usage

SHOWN_CHANGES = 20


@dataclass(slots=True)
class Row:
    """One session. `status` is "unfinished" while, or if, its run has not ended; "unreadable" where its record is.

    `usage` and `cost_usd` are of all its runs; the cost is None where it is not known of one, or nothing was used.
    """

    session_id: str
    started_unix_s: float = 0.0
    workspace: str = ""
    model: str = ""
    task: str = ""
    status: str = "unfinished"
    forked_from: str | None = None
    forked_step: int | None = None
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None


@click.group(name="sessions", short_help="List past sessions, see the steps of one, audit its record.")
def COMMAND() -> None:
    """Past sessions; go on with one by `sandbox-agent run --resume ID`."""


COMMAND.add_command(audit.audit_session)
COMMAND.add_command(removing.remove)


@COMMAND.command(
    name="list",
    epilog="\b\nExamples:\n  sandbox-agent sessions list -n 5\n"
    "  sandbox-agent sessions list --json | jq -r 'select(.status != \"done\") | .session_id'\n",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_sessions(limit: int, as_json: bool) -> int:
    """List sessions, newest first."""
    for row in _rows(limit):
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
    epilog="\b\nExamples:\n  sandbox-agent sessions show last\n  sandbox-agent sessions show last --json | jq .step\n",
    short_help="Show the steps of a session with the files each changed, and what its runs used.",
)
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a step, unsanitised.")
def show(session_id: str, as_json: bool) -> int:
    """The steps of session ID ("last" is the newest): what made each, the files it changed, and what each run used.

    `sandbox-agent undo ID --to STEP` goes back to one, `sandbox-agent fork ID --at STEP` begins a new session at it.
    """
    sessions = sessions_dir()
    found = find_session(sessions, session_id)
    entries = read_tape(sessions / found / EVENTS_FILE).entries
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
        _show_spent(spent.runs(entries))
    return 0


def _show_spent(runs: Sequence[spent.Spent]) -> None:
    for number, run in enumerate(runs, start=1):
        click.echo(f"run {number:<5} {run.line()}")
    if len(runs) > 1:
        click.echo(f"in all    {spent.in_all(runs).line()}")


def _rows(limit: int) -> Iterator[Row]:
    sessions = sessions_dir()
    for session_id in session_ids(sessions)[:limit]:
        row = Row(session_id)
        try:
            entries = read_tape(sessions / session_id / EVENTS_FILE).entries
        except RecordError:
            row.status, entries = "unreadable", ()
        whole = spent.in_all(spent.runs(entries))
        row.turns, row.usage, row.cost_usd = whole.turns, whole.usage, whole.cost_usd
        for entry in entries:
            match entry.event:
                case SessionStarted() as started:
                    row.started_unix_s, row.workspace, row.model = entry.time_unix_s, started.workspace, started.model
                    if started.forked_from is not None:  # only the first says so, not what it is gone on with
                        row.forked_from, row.forked_step = started.forked_from, started.forked_step
                case ProjectInstructions():
                    pass
                case UserMessage(agent_id="main", content=content) if not row.task:
                    row.task = " ".join(str(block.get("text", "")) for block in content)
                case RunFinished(agent_id="main") as finished:
                    row.status = finished.status
                case _:
                    pass
        yield row
