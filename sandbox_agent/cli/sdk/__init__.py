"""`sandbox-agent-sdk`: the second console script, for programs built on claude-agent-sdk (`cli_path`). It has no
sub-commands: its flags are those that the package gives to its CLI, and everything else goes over the streams.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import click

from sandbox_agent import registry
from sandbox_agent.cli.faults import Terminated, catch_sigterm, machine_fault, report
from sandbox_agent.cli.streams import fill_closed
from sandbox_agent.errors import SandboxAgentError

NAME = "sandbox-agent-sdk"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one program over the standard streams, and exit: 0, or 1 where the last result was an error."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    gc.disable()  # as in `cli.main`; a session turns it on again
    fill_closed()
    try:
        catch_sigterm()
        command = registry.load("cli.sdk", "command").COMMAND
        code = command.main(arguments, prog_name=NAME, standalone_mode=False)
    except (click.ClickException, click.Abort, SandboxAgentError, Terminated) as exc:
        code = report(exc, arguments)
    except (OSError, ExceptionGroup) as exc:
        if machine_fault(exc) is None:
            raise
        code = report(exc, arguments)
    sys.exit(code if isinstance(code, int) else 0)
