"""A fault that ends a command: one clear line on stderr, and, where JSON was asked for, the document on stdout too."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from sandbox_agent import registry
from sandbox_agent.cli import near
from sandbox_agent.errors import SandboxAgentError

ABORTED = 130
TERMINATED = 143
USAGE = 2

MACHINE_ERRNOS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM,
        errno.ENOTDIR, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    }
)  # fmt: skip
"""What the machine or its set-up refuses: nothing that a trace would help with. Any other is a fault of ours."""


class Terminated(BaseException):
    """SIGTERM came before the run was there to deal with it."""


def catch_sigterm() -> None:
    """Let SIGTERM raise `Terminated` from now on; the run's own handling takes over later."""

    def raise_it(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated("ended by SIGTERM")

    signal.signal(signal.SIGTERM, raise_it)


def machine_fault(fault: BaseException) -> str | None:
    """What the system refused, for people; None where the fault is something else."""
    while isinstance(fault, BaseExceptionGroup) and len(fault.exceptions) == 1:
        fault = fault.exceptions[0]
    if not isinstance(fault, OSError) or fault.errno not in MACHINE_ERRNOS:
        return None
    where = f"{os.fsdecode(fault.filename)}: " if isinstance(fault.filename, str | bytes) else ""
    return f"{where}{fault.strerror}"


def report(fault: BaseException, arguments: Sequence[str]) -> int:
    """Say what was wrong; returns the exit code.

    Args:
        fault: a click exception, an error of ours that no command dealt with, a `machine_fault`, or `Terminated`.
        arguments: the command line, to know whether stdout has to carry JSON: click may have failed before it knew.
    """
    if isinstance(fault, click.exceptions.NoArgsIsHelpError):
        # A group without a command: its help as it is, on stderr, for nothing was asked for.
        click.echo(fault.format_message(), err=True)
        return USAGE
    if isinstance(fault, click.Abort):
        code, text = ABORTED, "ended by SIGINT"
    elif isinstance(fault, Terminated):
        code, text = TERMINATED, str(fault)
    elif isinstance(fault, click.ClickException):
        code, text = USAGE if isinstance(fault, click.UsageError) else fault.exit_code, _usage(fault)
    else:
        code, text = (
            fault.exit_code if isinstance(fault, SandboxAgentError) else 1,
            _clean(machine_fault(fault) or str(fault)),
        )
    say(text)
    output = wanted_output(arguments)
    if output in ("json", "stream-json"):
        registry.load("frontends", "headless").refuse(output, sys.stdout, code, text)
    return code


def say(text: str) -> None:
    """One line of ours on stderr."""
    shown: str = registry.load("frontends", "sanitise").sanitise(text)
    click.echo(f"sandbox-agent: {shown}", err=True)


def wanted_output(arguments: Sequence[str]) -> str | None:
    """The value of the last `--output` of a `run`, found without click; None where there is none."""
    found = None
    for number, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--output" and number + 1 < len(arguments):
            found = arguments[number + 1]
        elif argument.startswith("--output="):
            found = argument.removeprefix("--output=")
    return found if arguments[:1] and arguments[0] == "run" else None


def _clean(text: str) -> str:
    """Without the person's keys: an error may quote what it was given."""
    module = registry.load("engine", "secrecy")
    cleaned: str = module.Redactor(module.environment_secrets(os.environ)).text(text)
    return cleaned


def _usage(fault: click.ClickException) -> str:
    """click's own words (it names the choices) on one line, and where help is."""
    if isinstance(fault, click.NoSuchOption):
        text = near.unknown_option(fault)
    else:
        told = near.missing_task(fault) if isinstance(fault, click.MissingParameter) else None
        text = told or near.several_words(fault, " ".join(fault.format_message().split()).rstrip("."))
    text = text[:1].lower() + text[1:]
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    return f"{text.rstrip('.')}; see: {context.command_path if context else 'sandbox-agent'} --help"
