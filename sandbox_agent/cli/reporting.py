"""`sandbox-agent report`: the options. What it does is in `reporting_run`, imported only when a report is written."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete

FILE = click.Path(path_type=Path)

EXAMPLES = """\b
Examples:
  sandbox-agent report last --open
  sandbox-agent report ID --html session.html
  sandbox-agent report last --junit junit.xml --sarif findings.sarif
  sandbox-agent report last --markdown - >> "$GITHUB_STEP_SUMMARY"

\b
Exit codes: 0 written, whatever the session came to; 1 the record is gone or unreadable; 2 usage.
"""


@click.command(name="report", epilog=EXAMPLES, short_help="Write a session as a page, Markdown, JUnit or SARIF.")
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--html", metavar="FILE", type=FILE, help="One page with everything in it; it loads nothing.")
@click.option("--markdown", metavar="FILE", type=FILE, help="A short summary for a pipeline's page.")
@click.option("--junit", metavar="FILE", type=FILE, help="A case for every check and every task.")
@click.option("--sarif", metavar="FILE", type=FILE, help="What was found with ReportFindings, as SARIF 2.1.0.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in your browser.")
def COMMAND(session_id: str, open_page: bool, **files: Path | None) -> int:
    """Write reports of session ID ("last" is the newest), made of its record. FILE - is standard output.

    A session that still runs, or was killed, is told as far as it is recorded.
    """
    wanted = {kind: path for kind, path in files.items() if path is not None}
    if not wanted and not open_page:
        raise click.UsageError("say what to write: --html FILE, --markdown FILE, --junit FILE, --sarif FILE, or --open")
    if [str(path) for path in wanted.values()].count("-") > 1:
        raise click.UsageError("only one report can go to standard output")
    code: int = registry.load("cli", "reporting_run").write(session_id, wanted, open_page=open_page)
    return code
