"""`sandbox-agent apply ID`: brings the kept changes of a session to the person's folder."""

from __future__ import annotations

import sys

import anyio
import click

from sandbox_agent.cli.kept import Kept, apply_kept, open_kept
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends import review, words
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.review import Choice
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.terminal import Terminal, open_terminal


@click.command(
    name="apply",
    epilog="\b\nExamples:\n  sandbox-agent apply last\n  sandbox-agent apply last --all\n"
    "  sandbox-agent apply last src/ 'docs/*.md'\n",
    short_help="Apply the kept changes of a session to your folder.",
)
@click.argument("session_id", metavar="ID")
@click.argument("paths", metavar="[PATH|PATTERN]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Apply all without asking (links only when named).")
def COMMAND(session_id: str, paths: tuple[str, ...], everything: bool) -> int:
    """Apply the kept changes of session ID ("last" is the newest): all, those named, or after a review."""
    if everything and paths:
        raise click.UsageError("--all and paths exclude each other")
    kept = open_kept(session_id)
    printer = Printer(make_console(sys.stdout))
    if not kept.changes:
        printer.line("Nothing is waiting to be applied.")
        return 0
    choice = Choice(None) if everything else _named(kept, paths) if paths else _ask(kept, printer)
    if choice.paths == ():
        printer.line("Nothing was applied.")
        return 0
    return _apply(kept, choice, printer)


def _named(kept: Kept, paths: tuple[str, ...]) -> Choice:
    changed = [str(change["path"]) for change in kept.changes]
    chosen: set[str] = set()
    for path in paths:
        found = review.matching(changed, path)
        if not found:
            raise ConfigError(f"session {kept.session_id} has no change that fits {path!r}; nothing was applied")
        chosen |= found
    return Choice(tuple(path for path in changed if path in chosen))


def _ask(kept: Kept, printer: Printer) -> Choice:
    fd = open_terminal() if printer.console.file.isatty() else None
    if fd is None:
        raise ConfigError("nobody is there to ask: give --all, or the paths to apply")
    review.show(printer, kept.changes)
    return anyio.run(review.choose, Terminal(printer, fd), kept.changes)


def _apply(kept: Kept, choice: Choice, printer: Printer) -> int:
    outcome = apply_kept(kept, choice.paths)
    if outcome.applied:
        printer.line(f"Applied {words.count(len(outcome.applied), 'path')} to {sanitise(str(kept.workspace.host))}.")
    for path, reason in sorted((dict(outcome.withheld) | dict(outcome.conflicts)).items()):
        printer.line(f"Not applied: {sanitise(path)} ({sanitise(reason)})", "yellow")
    if outcome.unapplied:
        printer.line(f"{words.count(len(outcome.unapplied), 'path')} kept.")
    return 1 if outcome.conflicts else 0
