"""`sandbox-agent sessions rm`: removes sessions with all that was kept of them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import anyio
import click

from sandbox_agent.cli import complete
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.lock import SessionLock, in_use
from sandbox_agent.engine.past import EVENTS_FILE, folder_of, session_ids
from sandbox_agent.errors import ConfigError, RecordError, SandboxUnavailableError, WorkspaceError
from sandbox_agent.events import ChangesApplied, ReviewReady
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.terminal import Terminal, open_terminal
from sandbox_agent.frontends.words import count
from sandbox_agent.tape import read_tape
from sandbox_agent.workspaces.record import RECORD_NAME, Record, volume_of
from sandbox_agent.workspaces.removal import remove_tree

SHOWN_PATHS = 5


@click.command(
    name="rm",
    epilog="\b\nExamples:\n  sandbox-agent sessions rm last\n  sandbox-agent sessions rm --all-applied\n",
    short_help="Remove sessions with all that was kept of them.",
)
@click.argument("session_ids_given", metavar="[ID]...", nargs=-1, shell_complete=complete.sessions)
@click.option("--all-applied", is_flag=True, help="All sessions in which nothing waits to be applied.")
@click.option(
    "--abandon", is_flag=True, help="Also where the copy is on an engine that is out of reach: it stays there."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, not even where changes were never applied.")
def remove(session_ids_given: tuple[str, ...], all_applied: bool, abandon: bool, yes: bool) -> int:
    """Remove sessions: record, checkpoints, before-images and kept changes. Your folder is not touched."""
    if bool(session_ids_given) == all_applied:
        raise click.UsageError("give the IDs of sessions, or --all-applied")
    sessions = sessions_dir()
    if all_applied:
        wanted = [
            name for name in session_ids(sessions) if not in_use(sessions / name) and not waiting(sessions / name)
        ]
    else:
        wanted = list(dict.fromkeys(folder_of(sessions, name).name for name in session_ids_given))
    for name in wanted:
        _remove(sessions, name, abandon=abandon, yes=yes)
    if not wanted:
        click.echo("Nothing to remove.")
    return 0


def waiting(folder: Path) -> str | None:
    """What only this session has, in a few words; None if there is nothing."""
    if not (folder / RECORD_NAME).exists():
        return None
    try:
        if Record.load(folder).mode == "bind":
            return None  # what it changed is in the folder
    except WorkspaceError:
        return "a copy that cannot be read"
    paths: tuple[str, ...] | None = None
    try:
        entries = read_tape(folder / EVENTS_FILE).entries
    except RecordError:
        return "a record that cannot be read"
    for entry in entries:
        match entry.event:
            case ReviewReady(changes=changes):
                paths = tuple(str(change["path"]) for change in changes)
            case ChangesApplied(unapplied=unapplied):
                paths = unapplied
            case _:
                pass
    if paths is None:
        return "changes that nobody has looked at"
    if not paths:
        return "commits made inside"
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"{count(len(paths), 'change')} not applied: {', '.join(paths[:SHOWN_PATHS])}{more}"


def _remove(sessions: Path, name: str, *, abandon: bool, yes: bool) -> None:
    folder = sessions / name
    lock = SessionLock(folder)
    try:
        held = waiting(folder)
        if held is not None and not yes and not _agreed(name, held):
            click.echo(f"kept {name}")
            return
        try:
            anyio.run(discard, folder)
        except SandboxUnavailableError as error:
            if not volume_of(folder):
                raise
            if not abandon:
                raise SandboxUnavailableError(f"{error}; or give --abandon to leave it there") from error
            click.echo(f"left at an engine: {sanitise(str(error))}", err=True)
            anyio.run(partial(discard, folder, leave_volume=True))
        remove_tree(sessions.resolve(), name)
    finally:
        lock.release()
    click.echo(f"removed {name}")


def _agreed(name: str, held: str) -> bool:
    printer = Printer(make_console(sys.stdout))
    fd = open_terminal() if printer.console.file.isatty() else None
    if fd is None:
        raise ConfigError(f"session {name} holds {held}; nobody is there to ask: give --yes to remove it all the same")
    question = f"Session {name} holds {sanitise(held)}. Remove it for good? [y/N] > "
    answer = anyio.run(Terminal(printer, fd).ask, question)
    return (answer or "").lower() in ("y", "yes")
