"""`sandbox-agent replay --from STEP`: a session that goes on from a step of a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent.cli.execute import start
from sandbox_agent.config import DEFAULT_MODEL, RunConfig
from sandbox_agent.engine.branching import branch
from sandbox_agent.records.bundle import read
from sandbox_agent.types import Mode


def go_on(
    file: Path,
    step: int,
    folder: Path,
    *,
    model: str | None,
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    verbose: bool,
) -> int:
    """Make the branch and run it; returns the exit code of the run.

    Raises:
        ConfigError, ReplayMismatchError: see `branch` and `bundle.read`.
    """
    made = branch(read(file), step, folder)
    click.echo(f"Session {made.session_id} begins with step {made.step} of {file}, in {folder}.", err=True)
    config = RunConfig(
        workspace=folder,
        model=model or DEFAULT_MODEL,
        policy=policy,
        mode=Mode(mode) if mode else None,
        allow=allow,
        resume=made.session_id,
    )
    return start(config, "", apply="never", output="text", verbose=verbose)
