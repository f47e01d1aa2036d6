"""Names that are ours for what a person typed: near ones, and what other agents' command lines call the same thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import click

COMMANDS: Mapping[str, str] = {
    "audit": "sessions audit",
    "config": "policy show",
    "continue": "resume",
    "exec": "run",
    "help": "--help",
    "list": "sessions list",
    "ls": "sessions list",
    "rm": "sessions rm",
    "serve": "mcp serve",
    "show": "sessions show",
}
"""Words that people try first, to the command that does it."""

OPTIONS: Mapping[str, str] = {
    "--allow-dangerously-skip-permissions": "--mode bypassPermissions",
    "--allowed-tools": "--allow",
    "--allowedTools": "--allow",
    "--cd": "-w",
    "--cwd": "-w",
    "--dangerously-skip-permissions": "--mode bypassPermissions",
    "--directory": "-w",
    "--disallowed-tools": "--deny",
    "--disallowedTools": "--deny",
    "--full-auto": "--mode acceptEdits",
    "--input-format": "--input",
    "--json": "--output json",
    "--max-budget-usd": "--max-cost",
    "--output-format": "--output",
    "--permission-mode": "--mode",
    "--workdir": "-w",
    "--yolo": "--mode bypassPermissions",
    "-C": "-w",
    "-m": "--model",
    "-r": "--resume",
}
"""Options of other agents, to ours. Told only where the command has ours."""


def unknown_option(fault: click.NoSuchOption) -> str:
    """What to say of an option that the command does not have."""
    said = f"no such option {fault.option_name!r}"
    command = fault.ctx.command if fault.ctx is not None else None
    if command is None or fault.ctx is None:
        return said
    if isinstance(command, click.Group) and fault.ctx.parent is None:
        return said + _of_run(command, fault)
    hint = _ours(fault.option_name, command, fault.possibilities)
    return f"{said} (did you mean {hint}?)" if hint else said


def missing_task(fault: click.MissingParameter) -> str | None:
    """What to do where a session is to be gone on with and no task was given; None where it is something else."""
    context = fault.ctx
    if fault.param is None or fault.param.name != "task" or context is None or context.info_name != "run":
        return None
    if not (context.params.get("resume_last") or context.params.get("resume")):
        return None
    return "missing argument 'TASK'; without one: `sandbox-agent resume`, or `sandbox-agent chat -c` to talk"


def several_words(fault: click.ClickException, text: str) -> str:
    """The words of a task without quotes are arguments too many."""
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    if context is None or context.info_name not in ("run", "chat") or "unexpected extra argument" not in text:
        return text
    return f"{text}: put quotes around the words of a task"


def _of_run(group: click.Group, fault: click.NoSuchOption) -> str:
    """An option before any command is most often meant for `run`."""
    assert fault.ctx is not None
    run = group.get_command(fault.ctx, "run")
    hint = _ours(fault.option_name, run, None) if run is not None else None
    return f" (to give a task, write: {fault.ctx.command_path} run {hint.split(' or ')[0]} ... TASK)" if hint else ""


def _ours(typed: str, command: click.Command, near: list[str] | None) -> str | None:
    """Our name of it as the command has it: the same, what others call so, or a near one."""
    have = set(_names(command))
    if typed in have:
        return typed
    other = OPTIONS.get(typed)
    if other is not None and other.split()[0] in have:
        return other
    return " or ".join((near or get_close_matches(typed, have))[:2]) or None


def _names(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (*parameter.opts, *parameter.secondary_opts)
