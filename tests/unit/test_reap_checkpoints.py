"""What checkpoints mean for reaping: what was undone is only there, and a bound folder's way back is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.opening import create
from sandbox_agent.workspaces.reap import reap_sessions
from sandbox_agent.workspaces.snapshot import Node
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Step, Steps
from sandbox_agent.workspaces.stored import end_at


def session(tmp_path: Path, mode: str, *restored: int | None) -> Steps:
    """A dead session with these steps after the first, its copy unchanged."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "f").write_text("1")
    if os.geteuid() == 0:
        os.chown(host, 1234, 1234)
    folder = tmp_path / "sessions" / "one"
    create(mode, host, folder).prepare()
    steps = Steps(folder / CHECKPOINTS_NAME)
    steps.write(Step(0, "base", "0" * 64, 1.0, "w"), {"": Node(Kind.DIRECTORY, 0o755)})
    for number, step in enumerate(restored, 1):
        steps.write(Step(number, "calls", "0" * 64, 1.0, "w", restored=step), {})
    steps.store.put(b"content")
    return steps


def reaped(tmp_path: Path) -> tuple[str, ...]:
    return reap_sessions(tmp_path / "sessions", lambda _: False).removed


def test_steps_go_with_the_copy(tmp_path: Path) -> None:
    """Nothing of them is left but the number of the next one."""
    steps = session(tmp_path, "copy", None)
    assert reaped(tmp_path) == ("one",)
    assert (steps.numbers(), steps.next_number(), steps.store.folder.exists()) == ([], 2, False)


def test_what_was_undone_stays(tmp_path: Path) -> None:
    """The copy is as the folder, and still the person may want to undo the undo."""
    steps = session(tmp_path, "copy", None, 0)
    assert reaped(tmp_path) == ()
    assert steps.numbers() == [0, 1, 2]


@pytest.mark.parametrize(("restored", "removed"), [((), ("one",)), ((None,), ())])
def test_a_bound_folders_steps_stay_if_there_are_any(
    tmp_path: Path, restored: tuple[None, ...], removed: tuple[str, ...]
) -> None:
    """They are the only way back."""
    session(tmp_path, "bind", *restored)
    assert reaped(tmp_path) == removed


@pytest.mark.parametrize(("ended", "removed"), [(False, ()), (True, ("one",))], ids=["killed", "ended"])
def test_a_bound_folder_that_a_killed_session_changed_can_still_be_brought_back(
    tmp_path: Path, ended: bool, removed: tuple[str, ...]
) -> None:
    """No step has the change yet, but the first one has what was there before; one that ended had its last look."""
    session(tmp_path, "bind")
    (tmp_path / "host/f").write_text("changed")
    if ended:
        end_at(tmp_path / "sessions/one", 0)
    assert reaped(tmp_path) == removed
