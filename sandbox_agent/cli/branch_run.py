"""`sandbox-agent replay --from STEP`: a session that goes on from a step of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import click

from sandbox_agent.cli.execute import config_of, start
from sandbox_agent.config import DEFAULT_MODEL, sessions_dir
from sandbox_agent.engine.branching import branch
from sandbox_agent.engine.discarding import discard
from sandbox_agent.events import AssistantMessage, Event, SandboxReady
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.records.bundle import read
from sandbox_agent.workspaces.removal import remove_tree


def go_on(file: Path, step: int, folder: Path, *, model: str | None, verbose: bool, **options: Any) -> int:
    """Make the branch and run it; returns the exit code of the run. Where it could not begin (no key, no engine, a
    model that does not answer, an option that cannot be used), neither folder nor session is left.

    Raises:
        ConfigError, ReplayMismatchError, RecordError: see `branch` and `bundle.read`.
    """
    made = branch(read(file), step, folder)
    seen: set[type[Event]] = set()
    code = None
    try:
        options |= {"workspace": folder, "workspace_mode": "auto", "project_instructions": None}
        config = config_of(model=model or DEFAULT_MODEL, resume=made.session_id, **options)
        text = f"Session {made.session_id} begins with step {made.step} of {file}, in {folder}."
        click.echo(sanitise(text), err=True)
        code = start(config, "", apply="never", output="text", verbose=verbose, watch=lambda one: seen.add(type(one)))
        return code
    finally:
        if code != 0 and not seen.issuperset((SandboxReady, AssistantMessage)):
            _remove(made.session_id, folder)


def _remove(session_id: str, folder: Path) -> None:
    anyio.run(discard, sessions_dir() / session_id)
    remove_tree(sessions_dir().resolve(), session_id)
    whole = folder.resolve()
    remove_tree(whole.parent, whole.name)
