"""The command line. `main` is the console script.

This module imports click and nothing else of weight: a command's module is imported when that command is asked for,
and what it needs when it really runs, so `--help` stays far under 200 ms.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Sequence

import click

from sandbox_agent import __version__
from sandbox_agent.cli import near
from sandbox_agent.cli.faults import Terminated, machine_fault, report
from sandbox_agent.cli.lazy import LazyGroup
from sandbox_agent.cli.streams import fill_closed
from sandbox_agent.errors import SandboxAgentError

COMMANDS = {
    "run": ("run", "Give an agent a task on a folder."),
    "chat": ("chat", "Talk with an agent while it works on a folder."),
    "resume": ("resume", "Go on with an earlier session."),
    "demo": ("demo", "Watch a scripted model fix a real bug in a container; needs no key."),
    "doctor": ("doctor", "Check engine, image and isolation, and say what to do."),
    "escape-test": ("escape_test", "Try to get out of the sandbox, and say which ways are open."),
    "sessions": ("sessions", "List past sessions, see the steps of one, audit its record."),
    "report": ("reporting", "Write a session as a page, Markdown, JUnit or SARIF."),
    "undo": ("undo", "Bring a session's workspace back to an earlier step."),
    "replay": ("replay", "Do a recorded run once more, and compare."),
    "fork": ("fork", "Begin a new session at a step of another one."),
    "diff": ("diff", "Show what a session changed and did not apply."),
    "apply": ("apply", "Apply the kept changes of a session to your folder."),
    "export": ("export", "Take commits made inside out, as a bundle or patches."),
    "policy": ("policy", "Check and understand permission policies."),
    "mcp": ("mcp", "Check MCP servers, or be one."),
    "reap": ("reap", "Remove containers that a killed run left behind."),
    "completion": ("completion", "Print the completion script of your shell."),
}
"""Name to module and one line of help, so that listing the commands imports none of them."""

EXAMPLES = """\b
Examples:
  sandbox-agent doctor
  sandbox-agent demo
  sandbox-agent run "Fix the failing test" -w ./project
  sandbox-agent chat -w ./project
  sandbox-agent run -p --output json --apply always "Update the changelog"
"""


class MainGroup(LazyGroup):
    """The commands of the table; a sentence in their place is meant for `run`."""

    table = COMMANDS
    elsewhere = near.COMMANDS
    task_hint = "to give a task, write: sandbox-agent run TASK"


@click.group(
    cls=MainGroup,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="sandbox-agent", message="%(prog)s %(version)s")
def cli() -> None:
    """Run an AI agent on a folder without giving it the machine: every tool call runs in a hardened container."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 usage, and what `sandbox-agent run --help` lists."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Imports make many objects and no garbage: collecting meanwhile costs 15 % of a start. A run turns it on again.
    gc.disable()
    fill_closed()
    # `requests` has this filter too, but what another thread imports meanwhile can take it back.
    warnings.filterwarnings("ignore", message="SOCKS support in urllib3 requires")
    try:
        code = cli.main(arguments, prog_name="sandbox-agent", standalone_mode=False)
    except (click.ClickException, click.Abort, SandboxAgentError, Terminated) as exc:
        code = report(exc, arguments)
    except (OSError, ExceptionGroup) as exc:
        if machine_fault(exc) is None:
            raise
        code = report(exc, arguments)
    sys.exit(code if isinstance(code, int) else 0)
