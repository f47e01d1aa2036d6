"""`sandbox-agent chat`: the options, which are those of `run`. What they do is in `chat_run.py`."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import click

from sandbox_agent import registry
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.cli.run import COMMAND as RUN

EPILOG = """\b
Examples:
  sandbox-agent chat
  sandbox-agent chat -w ./project "What does this project do?"
  sandbox-agent chat -c --mode acceptEdits --allow "Bash(pytest:*)"

\b
Write at any time: while the agent works, it gets your message before its next step.
Esc or Ctrl-C stops it. /help lists the commands; /quit or Ctrl-D leaves, and the review follows.
The limits (--max-turns, --timeout, ...) are for each of your messages.

\b
Exit codes: 0 you left, 1 the last task failed, 2 usage or configuration, 3 done but permissions were denied,
4 a limit was hit, 5 the sandbox is unavailable or died, 6 model error, 130 and 143 ended by Ctrl-C or a signal.
"""

_OF_RUN_ALONE = ("task", "headless", "output", "repeat", "jobs", "input_format", "answer_schema")
_OTHER_HELP = {"apply": "What becomes of the changes when you leave. Default: ask."}


def _options() -> Iterator[click.Parameter]:
    for parameter in RUN.params:
        if parameter.name in _OF_RUN_ALONE or not isinstance(parameter, click.Option):
            continue
        option = copy.copy(parameter)
        option.help = _OTHER_HELP.get(str(option.name), option.help)
        yield option


@click.command(name="chat", epilog=EPILOG, short_help="Talk with an agent while it works on a folder.")
@click.argument("message", required=False)
def COMMAND(message: str | None, resume_last: bool, **options: object) -> int:
    """Talk with an agent that works on a folder; MESSAGE is what to begin with."""
    catch_sigterm()
    if resume_last:
        if options["resume"] is not None:
            raise click.UsageError("-c and --resume exclude each other")
        options["resume"] = "last"
    if message is not None and not message.strip():
        raise click.UsageError("the message is empty")
    code: int = registry.load("cli", "chat_run").chat(message, **options)
    return code


COMMAND.params += _options()
