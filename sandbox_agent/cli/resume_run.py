"""What `sandbox-agent resume` does: finds the session, and runs a task in it as `run --resume` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox_agent.cli.execute import run_task
from sandbox_agent.config import DEFAULT_MODEL, sessions_dir
from sandbox_agent.engine.container import last_start
from sandbox_agent.engine.past import find_session, newest_on
from sandbox_agent.errors import ConfigError
from sandbox_agent.prompts import prompt


def resume(wanted: str, task: str | None, workspace: Path | None, model: str | None, **options: Any) -> int:
    """Go on with a session; returns the exit code.

    Raises:
        ConfigError: there is no such session, or its folder is gone.
        RecordError: its record cannot be read.
    """
    sessions = sessions_dir()
    if wanted == "last":
        session_id = newest_on(sessions, (workspace or Path()).resolve())
    else:
        session_id = find_session(sessions, wanted)
    started = last_start(sessions / session_id)
    if workspace is None:
        workspace = Path(started.workspace) if started is not None else Path()
        if not workspace.is_dir():
            raise ConfigError(
                f"{workspace}: session {session_id} worked on this folder, which is gone; name one with -w"
            )
    if model is None:
        model = started.model if started is not None else DEFAULT_MODEL
    text = task if task is not None else prompt("engine/go_on")
    return run_task(text, workspace=workspace, model=model, resume=session_id, **options)
