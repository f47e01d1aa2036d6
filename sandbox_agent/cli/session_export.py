"""`sandbox-agent sessions export ID FILE`: a whole session as one file that can be given to somebody else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.errors import ConfigError

FORMATS = {"md": "markdown", "txt": "markdown", "json": "json"}
"""By the end of the file's name."""


@click.command(
    name="export",
    epilog="\b\nExamples:\n  sandbox-agent sessions export last session.md\n"
    "  sandbox-agent sessions export ID session.json\n"
    "  sandbox-agent sessions export last - --format json | jq .review\n",
    short_help="Write a session into one file: to read (.md), or for programs (.json).",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), help="Default: by the name of FILE.")
@click.option("--force", is_flag=True, help="Replace FILE where it is there.")
def export_session(session_id: str, file: Path, form: str | None, force: bool) -> int:
    """Write session ID ("last" is the newest) into FILE, or to standard output for "-": what was said and done, the
    steps with the files each changed, the review with its diffs, and what was applied.

    Secrets are masked as they are in the record; file contents that the agent read, and your own words, are in it. It
    holds no checkpoint's contents: nobody can go on from it.
    """
    form = form or FORMATS.get(file.suffix.lstrip("."))
    if form is None:
        raise click.UsageError(f"{file}: name a file that ends in .md or .json, or give --format")
    text: str = registry.load("cli", "session_story").told(session_id, form)
    if str(file) == "-":
        sys.stdout.write(text)
        return 0
    _write(file, text.encode("utf-8", "backslashreplace"), force=force)
    click.echo(f"Written: {file} ({len(text):,} characters)", err=True)
    return 0


def _write(path: Path, data: bytes, *, force: bool) -> None:
    """Whole or not at all, for its owner alone; never through a link."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        try:
            if force:
                part.replace(path)
            else:
                os.link(part, path)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{path}: is there already; give another name, or --force") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
