"""Between the review and the apply everything is swapped for something else, inside and on the host: nothing outside
of the chosen files changes, and nothing outside of the folder is read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Shape, grow, picture, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ApplyOutcome
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.opening import reopen

HOST: Shape = {
    "f": b"1",
    "d/in": b"1",
    "d/deep/er": b"1",
    ".git/config": b"[core]\n",
    ".git/hooks/x": b"",
    "kept": b"1",
}
"""Of the workspace's folder; "kept" is what the session does not change."""

VICTIM: Shape = {"f": b"v", "in": b"v", "new": b"v", "deep/er": b"v", "config": b"v", "hooks/x": b"v"}
"""Outside, with the names that things inside have: whoever follows a link will find them there."""


def prepared(parent: Path) -> tuple[CopyWorkspace, Path]:
    """A session that changed all but "kept", as it was shown; and what is outside."""
    victim = grow(parent / "victim", VICTIM)
    workspace = started(parent, HOST)
    grow(workspace.source, {"f": b"2", "d/in": b"2", "d/deep/er": b"2", "d/new": b"2", "new": b"2", "n/new": b"2"})
    workspace.changes()
    return workspace, victim


def swapped(path: Path, what: bytes | Link | None) -> None:
    """Something else under that name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    grow(path.parent, {path.name: what})


def to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_socket(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o140644)


def away(root: Path) -> None:
    """The repository is moved elsewhere, and a link to the outside stands in its place."""
    (root / ".git").rename(root / "d" / "was-git")
    (root / ".git").symlink_to("../victim")


ATTACKS: dict[str, Callable[[Path], None]] = {
    "a file becomes a link out": lambda root: swapped(root / "f", Link("../victim/f")),
    "a new file becomes a link out": lambda root: swapped(root / "new", Link("../victim/new")),
    "a file becomes an absolute link": lambda root: swapped(root / "f", Link(str(root.parent / "victim/f"))),
    "a folder becomes a link out": lambda root: swapped(root / "d", Link("../victim")),
    "a deep folder becomes a link out": lambda root: swapped(root / "d/deep", Link("../../victim/deep")),
    "a folder becomes a link to git's": lambda root: swapped(root / "d", Link(".git/hooks")),
    "a new folder becomes a link out": lambda root: swapped(root / "n", Link("../victim")),
    "a file becomes a FIFO": lambda root: to_fifo(root / "f"),
    "a file becomes a socket": lambda root: to_socket(root / "f"),
    "a file becomes a folder": lambda root: swapped(root / "f", FOLDER),
    "a folder becomes a file": lambda root: swapped(root / "d", b"2"),
    "git's folder is moved and replaced": away,
}


def outside(parent: Path) -> dict[str, object]:
    """All that must not change whatever happens."""
    seen = picture(parent / "victim")
    return seen | {
        f"host {path}": what for path, what in picture(parent / "host").items() if path in ("kept", "d/kept")
    }


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("where", ["inside", "host"])
def test_what_is_swapped_after_the_review_harms_nobody(tmp_path: Path, where: str, attack: str) -> None:
    """What was swapped is refused, all else arrives as it was shown, and git's folder is as it was (or was made)."""
    workspace, victim = prepared(tmp_path)
    root = workspace.source if where == "inside" else workspace.host
    ATTACKS[attack](root)
    before, git = outside(tmp_path), picture(workspace.host / ".git")

    outcome = workspace.apply()

    assert outcome.conflicts != {} or attack.startswith("git's")
    assert outside(tmp_path) == before
    assert picture(workspace.host / ".git") == git
    assert sorted(victim.iterdir()) == sorted(victim / name for name in {path.split("/")[0] for path in VICTIM})
    _only_what_was_shown(workspace, outcome)


def _only_what_was_shown(workspace: CopyWorkspace, outcome: ApplyOutcome) -> None:
    for path in outcome.applied:
        assert (workspace.host / path).read_bytes() == b"2"
        assert not any((workspace.host / part).is_symlink() for part in (path, *map(str, Path(path).parents)))


@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_above_that_has_become_a_link_ends_the_apply(tmp_path: Path, depth: int) -> None:
    """The folder of the session is the one that its path led to, without a link, when it began."""
    above = tmp_path / "one" / "two"
    above.mkdir(parents=True)
    workspace, _ = prepared(above)
    swap = [above, above.parent][depth - 1]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(swap, elsewhere, symlinks=True)
    swap.rename(tmp_path / "moved")
    swap.symlink_to(elsewhere)
    state = (tmp_path / "moved").joinpath(*["two"] * (depth - 1), "state")
    before = picture(elsewhere), picture(tmp_path / "moved")

    for step in (workspace.apply, lambda: reopen(state).apply(), lambda: reopen(state).changes()):
        with pytest.raises(WorkspaceError, match="cannot be opened"):
            step()

    assert (picture(elsewhere), picture(tmp_path / "moved")) == before


def test_repositories_that_are_moved_inside_do_not_come_out(tmp_path: Path) -> None:
    """Under another name git's folder is a folder as any: what is in it comes only as new files, links by name only."""
    workspace, victim = prepared(tmp_path)
    (workspace.source / ".git").rename(workspace.source / "plain")
    (workspace.source / ".git").symlink_to("../victim")
    git = picture(workspace.host / ".git")
    before = picture(victim)
    workspace.changes()

    outcome = workspace.apply()

    assert picture(workspace.host / ".git") == git
    assert picture(victim) == before
    assert not any(path.split("/")[0] == ".git" for path in outcome.applied)
