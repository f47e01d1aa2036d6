"""`sandbox-agent resume [ID] [TASK]`: go on with an earlier session, on its own folder and with its own model."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.cli.run import COMMAND as RUN
from sandbox_agent.cli.run import read_task

EPILOG = """\b
Examples:
  sandbox-agent resume
  sandbox-agent resume last "And now the documentation"
  sandbox-agent resume 20261130101500abcdef01 --apply always -p

\b
Exit codes: as of sandbox-agent run.
"""

_NOT_HERE = ("task", "resume_last", "resume", "repeat", "jobs", "input_format")
_OTHER_HELP = {
    "workspace": "The folder to work on. Default: the session's.",
    "model": "As of run. Default: the session's.",
}
_ID = re.compile(r"(?:[a-z0-9]{16,64}|\d[a-z0-9]*)\Z")


def _options() -> Iterator[click.Parameter]:
    for parameter in RUN.params:
        if parameter.name in _NOT_HERE or not isinstance(parameter, click.Option):
            continue
        option = copy.copy(parameter)
        if option.name in _OTHER_HELP:
            option.help, option.default, option.show_default = _OTHER_HELP[option.name], None, False
        yield option


@click.command(name="resume", epilog=EPILOG, short_help="Go on with an earlier session.")
@click.argument("words", metavar="[ID] [TASK]", nargs=-1, shell_complete=complete.sessions)
def COMMAND(words: tuple[str, ...], workspace: Path | None, model: str | None, **options: object) -> int:
    """Go on with session ID, with everything that was said and its copy of the folder, changes that were not applied
    too; a session that was killed, as well. Without an ID, or with "last", it is the newest of the current folder (or
    of -w). Without a TASK the agent is told to go on where it stopped.
    """
    catch_sigterm()
    session_id, task = _split(words)
    stdin_is_task = task == "-"
    text = read_task() if stdin_is_task else task
    if text is not None and not text.strip():
        raise click.UsageError("the task is empty")
    run = registry.load("cli", "resume_run").resume
    code: int = run(session_id, text, workspace, model, stdin_is_task=stdin_is_task, **options)
    return code


COMMAND.params += _options()


def _split(words: tuple[str, ...]) -> tuple[str, str | None]:
    """Which session and what to do; a single word that is no ID is the task."""
    if len(words) > 2:
        raise click.UsageError("give an ID and a task; put a task of several words into quotes")
    if not words:
        return "last", None
    if len(words) == 2 or words[0] == "last" or _ID.match(words[0]):
        return words[0], words[1] if len(words) == 2 else None
    return "last", words[0]
