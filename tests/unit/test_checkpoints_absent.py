"""A sandbox in which no checkpoint can be taken: told once, and nothing waits for one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.errors import SandboxDiedError, WorkspaceError
from sandbox_agent.events import Event, Notice
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.workspaces.opening import create


def checkpoints(tmp_path: Path, sandbox: FakeSandbox, events: list[Event]) -> Checkpoints:
    (tmp_path / "host").mkdir()
    workspace = create("copy", tmp_path / "host", tmp_path / "state")
    workspace.prepare()
    return Checkpoints(sandbox, workspace, tmp_path / "state", emit=events.append, last_seq=lambda: 0)


async def test_an_image_without_python_has_no_checkpoints_and_says_so(tmp_path: Path) -> None:
    """Calls go on, and an undo is refused."""
    events: list[Event] = []
    made = checkpoints(tmp_path, FakeSandbox(), events)
    await made.begin()
    await made.take(["call"], made.expect())
    with anyio.fail_after(5):
        await made.settled()
    assert await made.finish() is None
    [notice] = events
    assert isinstance(notice, Notice)
    assert "no python3" in notice.text
    assert "no undo" in notice.text
    with pytest.raises(WorkspaceError, match="no checkpoints"):
        await made.undo(0)


async def test_a_sandbox_that_died_is_the_runs_own_matter(tmp_path: Path) -> None:
    """The checkpoint says nothing about it, and holds nothing up."""
    events: list[Event] = []
    sandbox = FakeSandbox()
    made = checkpoints(tmp_path, sandbox, events)
    sandbox.fail_next(SandboxDiedError("gone"))
    await made.begin()
    with anyio.fail_after(5):
        await made.settled()
    assert events == []


async def test_whatever_writes_waits_for_the_base(tmp_path: Path) -> None:
    """Until `begin` is over, whichever way it ends."""
    made = checkpoints(tmp_path, FakeSandbox(), [])
    with anyio.move_on_after(0.05) as scope:
        await made.settled()
    assert scope.cancelled_caught
    await made.begin()
    with anyio.fail_after(5):
        await made.settled()
