"""`sandbox-agent undo ID`: brings the workspace of a session back to what it was after an earlier step."""

from __future__ import annotations

import sys
from functools import partial

import anyio
import click

from sandbox_agent.cli import complete
from sandbox_agent.engine.forking import session_folder
from sandbox_agent.engine.undoing import undo_session
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends import undo_view
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.terminal import Terminal, open_terminal

QUESTION = "Rewind the conversation to that step, too? If not, the model is told what was undone. [y/N] "


@click.command(
    name="undo",
    epilog="\b\nExamples:\n  sandbox-agent sessions show last\n  sandbox-agent undo last\n"
    "  sandbox-agent undo last --to 0 --conversation\n",
    short_help="Bring a session's workspace back to an earlier step.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--to", metavar="STEP", type=click.IntRange(min=0), help="The step to go back to. Default: one back.")
@click.option(
    "--conversation/--no-conversation",
    "rewind",
    default=None,
    help="Whether the conversation is rewound, too. Default: ask.",
)
def COMMAND(session_id: str, to: int | None, rewind: bool | None) -> int:
    """Bring the workspace of session ID ("last" is the newest) back to what it was after a step.

    What stands there now becomes a step of its own, so an undo can be undone.
    """
    printer = Printer(make_console(sys.stdout))
    session_folder(session_id)  # before anything is asked: is there anything to undo?
    if rewind is None:
        rewind = _ask(printer)

    def tell(text: str) -> None:
        printer.line(f"! {sanitise(text)}")

    undone = anyio.run(partial(undo_session, session_id, to, rewind=rewind, tell=tell))
    undo_view.show(printer, undone.reached, rewound=rewind)
    printer.line(f"Go on: sandbox-agent run --resume {undone.session_id} TASK")
    return 0


def _ask(printer: Printer) -> bool:
    fd = open_terminal() if printer.console.file.isatty() else None
    if fd is None:
        raise ConfigError("nobody is there to ask: give --conversation (rewind it, too) or --no-conversation")
    answer = anyio.run(Terminal(printer, fd).ask, QUESTION)
    if answer is None:
        raise click.Abort
    return answer.lower() in ("y", "yes")
