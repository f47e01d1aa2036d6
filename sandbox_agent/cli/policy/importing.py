"""`sandbox-agent policy import`: permission lists of Claude Code's settings as a policy file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.importing import read_settings
from sandbox_agent.policy.load import parse_policy


@click.command(
    name="import",
    epilog="\b\nExamples:\n  sandbox-agent policy import .claude/settings.json\n"
    "  sandbox-agent policy import ~/.claude/settings.json -o imported.yaml\n\n"
    "\b\nExit codes: 0 taken over (read the notes), 2 the file is wrong.\n",
    short_help="Take over permission lists of Claude Code's settings.",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write to a new file.")
def COMMAND(file: Path, output: Path | None) -> int:
    """Print the permissions of the settings in FILE as a policy. What cannot be taken over, or means something else
    here, is a comment in it and a line on stderr."""
    found = read_settings(file)
    text = found.text(str(file))
    parse_policy(text, "the imported policy")  # what is printed loads, or this is a fault of ours
    if output is not None:
        _write(output, text)
    else:
        click.echo(text, nl=False)
    for note in found.all_notes():
        click.echo(f"note: {sanitise(note)}", err=True)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "w", encoding="utf-8"
        ) as to:
            to.write(text)
    except FileExistsError as exc:
        raise ConfigError(f"{path}: it is there already; choose another name") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: it cannot be written: {exc.strerror}") from exc
