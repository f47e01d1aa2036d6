"""What `report` does, and a run with `--report`: read the record, write each file whole, open the page."""

from __future__ import annotations

import os
import tempfile
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path

import click

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.past import EVENTS_FILE, folder_of
from sandbox_agent.errors import ConfigError, RecordError
from sandbox_agent.events import RunFinished
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.reports import telling
from sandbox_agent.reports.kinds import KINDS
from sandbox_agent.reports.parts import Task
from sandbox_agent.reports.story import Story
from sandbox_agent.types import Usage

UNREADABLE = 1
STDOUT = "-"
PAGE = "report.html"


def write(wanted: str, files: Mapping[str, Path], *, open_page: bool = False) -> int:
    """Write the reports of a session; returns the exit code.

    Args:
        wanted: an ID, or "last" for the newest session.
        files: kind of report to where it goes; `-` is standard output.
        open_page: open the page in a browser; without a file of its own it lies in the session's folder.

    Raises:
        ConfigError: there is no such session, or a file cannot be written.
    """
    folder = folder_of(sessions_dir(), wanted)
    try:
        told = telling.read(folder / EVENTS_FILE)
    except RecordError as error:
        click.echo(f"sandbox-agent: {sanitise(str(error))}", err=True)
        return UNREADABLE
    if open_page and str(files.get("html", STDOUT)) == STDOUT:
        _put(folder / PAGE, KINDS["html"](told))
        page = folder / PAGE
    else:
        page = files.get("html", folder / PAGE)
    for kind, path in files.items():
        _put(path, KINDS[kind](told))
    if open_page and not webbrowser.open(page.absolute().as_uri()):
        click.echo(f"No browser could be opened; the page is {sanitise(str(page))}", err=True)
    return 0


def write_all(session_id: str, files: Mapping[str, Path]) -> list[str]:
    """Write the reports of a run that has just ended. Returns a line for each that could not be."""
    try:
        told = telling.read(sessions_dir() / session_id / EVENTS_FILE)
    except RecordError as error:
        return [str(error)]
    return _written(told, files)


def write_unbegun(task: str, status: str, error: str | None, files: Mapping[str, Path]) -> list[str]:
    """The same for a run that never began, and so has no record."""
    now = time.time()
    end = RunFinished(status=status, text="", turns=0, usage=Usage(), duration_s=0.0, error=error)
    return _written(Story(tasks=[Task(text=task, time_unix_s=now, finished=end)]), files)


def _written(told: Story, files: Mapping[str, Path]) -> list[str]:
    faults = []
    for kind, path in files.items():
        try:
            _put(path, KINDS[kind](told))
        except ConfigError as error:
            faults.append(str(error))
    return faults


def _put(path: Path, text: str) -> None:
    """The whole file, or none: whoever reads it meanwhile sees the one that was there before."""
    data = text.encode("utf-8", "backslashreplace")
    if str(path) == STDOUT:
        click.echo(data.decode(), nl=False)
        return
    try:
        if path.exists() and not path.is_file():  # a pipe, or the summary file of a pipeline that is one
            path.write_bytes(data)
            return
        target = path.resolve()  # where a link of the person's leads, the file goes
        fd, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
