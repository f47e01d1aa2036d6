"""A kept workspace in a container, with its checkpoints, for as long as it takes: no process has the session open.

What a killed process left is made whole by it: a step of what was in none yet, and an interrupted undo is ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.container import recorded_spec
from sandbox_agent.engine.past import EVENTS_FILE, Past, load_past
from sandbox_agent.engine.stage import late_sandbox
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.events import Event, Notice
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.tape import TapeWriter
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.stored import end_at


@asynccontextmanager
async def standing(
    folder: Path, workspace: Workspace, endpoint: Endpoint, tape: TapeWriter, past: Past, tell: Callable[[str], None]
) -> AsyncIterator[Checkpoints]:
    """The checkpoints of a session, whose lock must be held.

    Args:
        folder: the session's.
        workspace: that it keeps.
        endpoint: the engine.
        tape: the session's record, which what happens goes to.
        past: what the record says.
        tell: takes lines for the person.

    Raises:
        SandboxError: the container could not be started, or ended.
    """
    sandbox = late_sandbox(recorded_spec(workspace, folder), endpoint, workspace)

    def emit(event: Event) -> None:
        tape.append(event)
        if isinstance(event, Notice):
            tell(event.text)

    checkpoints = Checkpoints(sandbox, workspace, folder, emit=emit, last_seq=lambda: tape.last_seq)
    try:
        await sandbox.start()
        await checkpoints.begin(after_seq=tape.last_seq, recorded=past.last_step)
        yield checkpoints
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
            await anyio.to_thread.run_sync(workspace.release)


async def complete(folder: Path, workspace: Workspace, endpoint: Endpoint, tell: Callable[[str], None]) -> None:
    """Take the last checkpoint of a session that was killed before it could; the session's lock must be held.

    Raises:
        SandboxError: see `standing`.
        WorkspaceError: no checkpoint can be had of it.
    """
    past = await anyio.to_thread.run_sync(load_past, sessions_dir(), folder.name, folder)
    tape = TapeWriter(folder / EVENTS_FILE)
    try:
        async with standing(folder, workspace, endpoint, tape, past, tell) as checkpoints:
            last = await checkpoints.finish()
        tape.sync()
    finally:
        tape.close()
    if last is None:
        raise WorkspaceError(f"what session {folder.name} changed cannot be told: no checkpoint of it could be taken")
    await anyio.to_thread.run_sync(end_at, folder, last)
