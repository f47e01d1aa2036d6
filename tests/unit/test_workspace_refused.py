"""Folders that are no workspace: each is refused in one line, before anything is copied."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest
from workspace_trees import Link, grow

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.opening import create


def refusal(host: Path, state: Path, mode: str = "copy") -> str:
    with pytest.raises(WorkspaceError) as caught:
        create(mode, host, state)
    assert not (state / "workspace").exists()
    return str(caught.value)


def test_folders_that_must_not_be_workspaces_are_refused(tmp_path: Path) -> None:
    """The machine, a home, what holds our state, what is missing and what is no folder: each in one line."""
    grow(tmp_path, {"file": b"", "holds/state/x": b"", "loop": Link("loop")})
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir) if os.geteuid() == 0 else Path("~").expanduser()
    state = tmp_path / "elsewhere"

    assert "whole machine" in refusal(Path("/"), state)
    assert "home folder" in refusal(home, state)
    assert "own state" in refusal(tmp_path / "holds", tmp_path / "holds/state/new")
    assert "own state" in refusal(grow(state / "s", {}), state)
    assert "does not exist" in refusal(tmp_path / "missing", tmp_path / "s2")
    assert "not a folder" in refusal(tmp_path / "file", tmp_path / "s3")
    assert "loop" in refusal(tmp_path / "loop", tmp_path / "s4")
    assert "must be overlay, copy or bind" in refusal(tmp_path / "holds", tmp_path / "s5", "other")


def test_the_home_of_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$HOME is a home folder whatever the user database says, and so is all above it."""
    monkeypatch.setenv("HOME", str(grow(tmp_path / "homes/me", {})))

    assert "home folder" in refusal(tmp_path / "homes/me", tmp_path / "state")
    assert "home folder" in refusal(tmp_path / "homes", tmp_path / "state")
    assert create("copy", grow(tmp_path / "homes/me/project", {}), tmp_path / "state").mode == "copy"


def test_an_unreadable_folder_is_refused(tmp_path: Path) -> None:
    """An ordinary user is told; root can read it."""
    host = grow(tmp_path / "host", {})
    host.chmod(0)
    if os.geteuid() == 0:
        assert create("copy", host, tmp_path / "state").host == host
    else:
        assert "cannot be read" in refusal(host, tmp_path / "state")
    host.chmod(0o755)


def test_a_link_to_the_folder_is_resolved_once(tmp_path: Path) -> None:
    """The person may name the folder by a link; from then on the real path counts."""
    grow(tmp_path, {"real/f": b"", "name": Link("real")})

    assert create("copy", tmp_path / "name", tmp_path / "state").host == tmp_path / "real"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({".git/HEAD": b"", "sub/f": b""}, "outside the workspace"),
        ({"sub/.git": b"gitdir: ../../main/.git/worktrees/sub\n"}, "worktree or submodule"),
        ({"sub/.git": Link("/somewhere/else")}, "is a link"),
    ],
)
def test_a_repository_that_lies_elsewhere_is_noticed(tmp_path: Path, shape: dict[str, bytes], words: str) -> None:
    """The person learns at the start that git will not work inside, and what would help."""
    host = grow(tmp_path / "top", shape) / "sub"

    (note,) = create("copy", host, tmp_path / "state").notes
    assert words in note


def test_a_folder_that_vanished_is_one_line(tmp_path: Path) -> None:
    """Between the check and the copying the folder may go."""
    workspace = create("copy", grow(tmp_path / "host", {}), tmp_path / "state")
    shutil.rmtree(workspace.host)

    with pytest.raises(WorkspaceError, match="cannot be copied"):
        workspace.prepare()
