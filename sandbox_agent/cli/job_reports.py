"""The reports of a run: what `--report` asks for, refused before anything starts, and written when all is over."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox_agent import registry
from sandbox_agent.cli.job import Job
from sandbox_agent.errors import ConfigError

NOT_WRITTEN = 2
KINDS = ("html", "markdown", "junit", "sarif")


def wanted_reports(given: Sequence[str]) -> dict[str, Path]:
    """Kind of report to its file.

    Raises:
        ConfigError: one is no KIND=FILE, a kind is there twice, or its folder cannot be written in.
    """
    found: dict[str, Path] = {}
    for one in given:
        kind, is_there, file = one.partition("=")
        if not is_there or kind not in KINDS or not file:
            raise ConfigError(f"--report {one}: write KIND=FILE, where KIND is one of {', '.join(KINDS)}")
        if kind in found:
            raise ConfigError(f"--report {one}: {kind} is there twice")
        path = Path(file)
        if file == "-" or path.is_dir():
            raise ConfigError(f"--report {one}: it goes to a file, for stdout is the answer's")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise ConfigError(f"--report {one}: {path.parent} is no folder that can be written in")
        found[kind] = path
    return found


def write_reports(job: Job, reports: Mapping[str, Path], code: int) -> int:
    """Write them, also of a run that could not even begin: what an earlier one left there is not this one's.

    Returns:
        The exit code: that of the run, but for one that was done and whose report is not there.
    """
    module = registry.load("cli", "reporting_run")  # with all that makes a page: not needed to run a task
    faults: list[str]
    if job.summary.started is not None:
        faults = module.write_all(job.summary.started.session_id, reports)
    else:
        faults = module.write_unbegun(job.task, job.summary.status, job.summary.error, reports)
    for fault in faults:
        job.say(f"sandbox-agent: {fault}", "red")
    if faults:
        return code or NOT_WRITTEN
    if job.screen.view is not None:
        job.say("reports: " + ", ".join(map(str, reports.values())), "dim")
    return code
