"""`sandbox-agent apply ID`: brings the kept changes of a session to the person's folder."""

from __future__ import annotations

import sys

import anyio
import click

from sandbox_agent.cli import complete
from sandbox_agent.cli.kept import Kept, apply_kept, open_kept, told
from sandbox_agent.engine.drifting import event_of
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import ReviewReady
from sandbox_agent.frontends import hunk_choice, review, stream_json, words
from sandbox_agent.frontends.drift import drift_line
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.review import Choice
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.frontends.terminal import Terminal, open_terminal
from sandbox_agent.workspaces.base import ApplyOutcome

_BY_NAME = "a link or special file goes only when its own path is named"


@click.command(
    name="apply",
    epilog="\b\nExamples:\n  sandbox-agent apply last\n  sandbox-agent apply last --all\n"
    "  sandbox-agent apply last src/ 'docs/*.md'\n  sandbox-agent apply last --hunks src/main.py\n"
    "  sandbox-agent apply last --all --json | jq .conflicts\n\n"
    "\b\nExit codes: 0 nothing stood in the way, 1 a file is in conflict (yours stays), 2 usage or no such session.\n",
    short_help="Apply the kept changes of a session to your folder.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.argument("paths", metavar="[PATH|PATTERN]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Apply all without asking (links and FIFOs only when named).")
@click.option("--hunks", "by_hunk", is_flag=True, help="Ask about every hunk (of the paths named, or of all).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document in place of text; needs --all or paths.")
def COMMAND(session_id: str, paths: tuple[str, ...], everything: bool, by_hunk: bool, as_json: bool) -> int:
    """Apply the kept changes of session ID ("last" is the newest): all, those named, or after a review."""
    if everything and paths:
        raise click.UsageError("--all and paths exclude each other")
    if everything and by_hunk:
        raise click.UsageError("--all and --hunks exclude each other")
    if as_json and (by_hunk or not (everything or paths)):
        raise click.UsageError("--json asks nothing: give --all, or the paths to apply")
    with open_kept(session_id, settle=True) as kept:
        if as_json:
            return _apply_as_json(kept, paths)
        return _apply_told(kept, paths, Printer(make_console(sys.stdout)), everything=everything, by_hunk=by_hunk)


def _apply_told(kept: Kept, paths: tuple[str, ...], printer: Printer, *, everything: bool, by_hunk: bool) -> int:
    if kept.settled is not None:
        printer.line("An apply that had been interrupted was finished first.")
        _tell(kept, kept.settled, printer)
    if kept.drift:
        printer.line(f"! {drift_line([one._asdict() for one in kept.drift], len(kept.drift))}", "yellow")
    if not kept.changes:
        printer.line("Nothing is waiting to be applied.")
        return 0
    choice = Choice(None) if everything else _choose(kept, paths, printer, by_hunk=by_hunk)
    if choice.nothing:
        printer.line("Nothing was applied.")
        return 0
    return _apply(kept, choice, printer)


def _apply_as_json(kept: Kept, paths: tuple[str, ...]) -> int:
    summary = RunSummary()
    summary.feed(ReviewReady(changes=kept.changes, commits=tuple(kept.workspace.commits)))
    if kept.drift:
        summary.feed(event_of(kept.drift))
    if kept.changes:
        summary.feed(told(apply_kept(kept, _named(kept, paths) if paths else Choice(None))))
    code = 1 if summary.conflicts else 0
    first = kept.settled
    document = {
        "session_id": kept.session_id,
        "finished_first": None if first is None else {"applied_files": first.applied, "conflicts": first.conflicts},
        **stream_json.changes(summary),
        "exit_code": code,
    }
    click.echo(stream_json.dump(document))
    return code


def _choose(kept: Kept, paths: tuple[str, ...], printer: Printer, *, by_hunk: bool) -> Choice:
    named = _named(kept, paths) if paths else None
    if named is not None and not by_hunk:
        return named
    fd = open_terminal() if printer.console.file.isatty() else None
    if fd is None:
        raise ConfigError("nobody is there to ask: give --all, or the paths to apply")
    terminal = Terminal(printer, fd)
    if not by_hunk:
        review.show(printer, kept.changes, drifted={one.path: one.kind for one in kept.drift})
        return anyio.run(review.choose, terminal, kept.changes)
    asked = [change for change in kept.changes if named is None or change["path"] in (named.paths or ())]
    return Choice(*anyio.run(hunk_choice.choose_hunks, terminal, asked))


def _named(kept: Kept, paths: tuple[str, ...]) -> Choice:
    chosen: set[str] = set()
    left_out = review.named_only_left_out(kept.changes, paths)
    for word in paths:
        found = review.matching(kept.changes, word)
        if not found:
            why = f" ({_BY_NAME})" if left_out else ""
            raise ConfigError(f"session {kept.session_id} has no change that fits {word!r}{why}; nothing was applied")
        chosen |= found
    for path in left_out:
        click.echo(f"Not applied: {sanitise(path)} ({_BY_NAME})", err=True)
    return Choice(tuple(str(change["path"]) for change in kept.changes if change["path"] in chosen))


def _apply(kept: Kept, choice: Choice, printer: Printer) -> int:
    outcome = apply_kept(kept, choice)
    if choice.paths is None:
        there = [change for change in kept.changes if change["path"] in outcome.applied]
        review.show_dangers(printer, there, "These can do something by themselves, and are in your folder now:")
    _tell(kept, outcome, printer)
    if outcome.unapplied:
        printer.line(f"{words.count(len(outcome.unapplied), 'path')} kept.")
    if kept.workspace.commits:
        printer.line(f"Commits made inside are kept: sandbox-agent export {kept.session_id} --bundle FILE")
    return 1 if outcome.conflicts else 0


def _tell(kept: Kept, outcome: ApplyOutcome, printer: Printer) -> None:
    if outcome.applied:
        printer.line(f"Applied {words.count(len(outcome.applied), 'path')} to {sanitise(str(kept.workspace.host))}.")
    if outcome.partial:
        printer.line(f"Applied in part: {', '.join(sanitise(path) for path in outcome.partial)}")
    for path, reason in sorted((dict(outcome.withheld) | dict(outcome.conflicts)).items()):
        printer.line(f"Not applied: {sanitise(path)} ({sanitise(reason)})", "yellow")
