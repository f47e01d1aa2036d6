"""`sandbox-agent sessions audit`: verifies the record of a session, and lists what a reviewer wants to see."""

from __future__ import annotations

import json
import re
import sys

import click

from sandbox_agent.cli import complete
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.auditing import audit
from sandbox_agent.engine.past import EVENTS_FILE, folder_of
from sandbox_agent.errors import RecordError
from sandbox_agent.frontends.audit import show
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise

PROVES_NOT = 1
_HEAD = re.compile(r"[0-9a-fA-F]{64}\Z")

EXAMPLES = """\b
Examples:
  sandbox-agent sessions audit last
  sandbox-agent sessions audit last --json | jq .contradictions
  sandbox-agent sessions audit last --head "$(cat kept-elsewhere)"

\b
Exit codes:
  0  the chain holds, --head is in it, every call that ran was allowed
  1  it is not so, or the record is gone or unreadable
  2  usage; there is no such session
"""


@click.command(name="audit", epilog=EXAMPLES, short_help="Verify the record of a session; list what matters in it.")
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, unsanitised.")
@click.option("--head", metavar="HASH", help="A head of this record that was kept elsewhere (a run prints its own).")
def audit_session(session_id: str, as_json: bool, head: str | None) -> int:
    """Verify the record of session ID ("last" is the newest) and list denials, questions, calls that did other than
    they declared, hooks, rules that were added, and what was applied to your folder."""
    if head is not None and not _HEAD.match(head):
        raise click.UsageError("--head takes 64 hex digits, as a run prints them")
    folder = folder_of(sessions_dir(), session_id)
    try:
        found = audit(folder, head=head)
    except RecordError as error:
        if as_json:
            where = {"session_id": folder.name, "record": str(folder / EVENTS_FILE)}
            click.echo(json.dumps({**where, "ok": False, "error": str(error)}))
        click.echo(f"sandbox-agent: {sanitise(str(error))}", err=True)
        return PROVES_NOT
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        show(Printer(make_console(sys.stdout)), found)
    return 0 if found.holds else PROVES_NOT
