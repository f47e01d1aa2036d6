"""The folder itself as the workspace: changes are listed, nothing is copied, nothing can be applied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workspace_trees import Program, grow, kinds, picture

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Owner, Workspace
from sandbox_agent.workspaces.opening import create, reopen

AS_ROOT = os.geteuid() == 0


def bound(tmp_path: Path, shape: dict[str, object], **options: object) -> Workspace:
    """A prepared bind of a folder that does not belong to root."""
    host = grow(tmp_path / "host", shape)  # type: ignore[arg-type]
    if AS_ROOT:
        os.chown(host, 1234, 1234)
    workspace = create("bind", host, tmp_path / "state", **options)  # type: ignore[arg-type]
    workspace.prepare()
    return workspace


def test_the_folder_itself_is_mounted(tmp_path: Path) -> None:
    """Nothing is copied or touched, the tools run as its owner, and the person is told what that means."""
    workspace = bound(tmp_path, {"f": b"1"})

    assert (workspace.mode, workspace.source) == ("bind", workspace.host)
    assert workspace.owner == (Owner(1234, 1234) if AS_ROOT else Owner(os.geteuid(), os.getegid()))
    assert "tools change the folder itself" in workspace.notes[0]
    assert sorted(os.listdir(tmp_path / "state")) == ["manifest.jsonl", "workspace.json"]
    assert workspace.changes() == ()


def test_a_folder_of_root_is_refused(tmp_path: Path) -> None:
    """Tools never run as root, so they could not write there; copy is named as the way."""
    host = grow(tmp_path / "host", {}) if AS_ROOT else Path("/usr/share")

    with pytest.raises(WorkspaceError, match=r"belongs to root.*copy"):
        create("bind", host, tmp_path / "state")


def test_changes_are_listed_by_another_process_too(tmp_path: Path) -> None:
    """Additions have a diff; of what is gone or overwritten only the digest is left."""
    workspace = bound(tmp_path, {"m": b"1", "d": b"1", ".git/config": b""})
    grow(workspace.host, {"m": b"2", "a": b"new\n", ".git/config": b"[core]\n", ".git/hooks/x": Program(b"")})
    (workspace.host / "d").unlink()
    again = reopen(tmp_path / "state")
    found = {change.path: change for change in again.changes()}

    assert kinds(tuple(found.values())) == {"a": "added", "d": "deleted", "m": "modified"}
    assert "+new" in (found["a"].diff or "")
    assert [(found[path].diff, (found[path].note or "")[:27]) for path in "dm"] == [
        (None, "no diff: the original is go")
    ] * 2
    assert again.notes[1:] == (
        "hooks changed, and git on the host runs them: .git/hooks/x",
        "git configuration changed, and git on the host obeys it: .git/config",
    )


def test_applying_does_nothing_and_says_so(tmp_path: Path) -> None:
    """All changes count as applied: they are in the folder."""
    workspace = bound(tmp_path, {"m": b"1"})
    grow(workspace.host, {"m": b"2"})
    before = picture(workspace.host)
    outcome = workspace.apply([])

    assert (outcome.applied, outcome.unapplied) == (("m",), ())
    assert picture(workspace.host) == before
    assert any("apply does nothing" in note for note in workspace.notes)


def test_masked_paths_are_named_and_never_read(tmp_path: Path) -> None:
    """The sandbox is told what to cover; later changes of such a file are not shown."""
    workspace = bound(tmp_path, {".env": b"K=1", "keys/a": b"k"}, masks=[".env", "keys/"])
    grow(workspace.host, {".env": b"K=2", "keys/b": b"k"})

    assert workspace.masked == {".env": ".env", "keys": "keys/"}
    assert workspace.changes() == ()
    assert "K=1" not in (tmp_path / "state/manifest.jsonl").read_text()


def test_discard_forgets_and_leaves_the_folder(tmp_path: Path) -> None:
    """Only our own list goes."""
    workspace = bound(tmp_path, {"m": b"1"})
    before = picture(workspace.host)
    workspace.discard()

    assert os.listdir(tmp_path / "state") == []
    assert picture(workspace.host) == before
