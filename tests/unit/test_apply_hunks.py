"""Bringing parts of files to the folder, and telling what changed there meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, gist, grow, kinds, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.hunks import Span, hunks_of
from sandbox_agent.workspaces.opening import reopen

BEFORE = "".join(f"{n}\n" for n in range(40)).encode()
AFTER = BEFORE.replace(b"\n3\n", b"\nthree\n").replace(b"\n33\n", b"\n33\nmore\n")


def edited(tmp_path: Path) -> CopyWorkspace:
    workspace = started(tmp_path, {"f": BEFORE, "g": b"1"})
    grow(workspace.source, {"f": Program(AFTER), "g": b"2"})
    return workspace


def spans(workspace: CopyWorkspace) -> list[Span]:
    return [hunk.span for change in workspace.changes() if change.path == "f" for hunk in hunks_of(change.diff or "")]


def test_exactly_the_chosen_hunks_go_and_the_rest_stays(tmp_path: Path) -> None:
    """Mode and other hunks are not part of it; another process shows the rest, and brings it."""
    workspace = edited(tmp_path)
    outcome = workspace.apply([], {"f": [spans(workspace)[1]]})

    assert (outcome.applied, outcome.partial, outcome.unapplied) == ((), ("f",), ("f", "g"))
    assert gist(workspace.host) == {"f": BEFORE.replace(b"\n33\n", b"\n33\nmore\n"), "g": b"1"}
    again = reopen(tmp_path / "state")
    [rest] = [change for change in again.changes() if change.path == "f"]
    assert [hunk.rows[3:5] for hunk in hunks_of(rest.diff or "")] == [("-3", "+three")]
    assert again.apply(["f"]).applied == ("f",)
    assert gist(workspace.host)["f"] == Program(AFTER)


def test_hunks_and_whole_files_go_together(tmp_path: Path) -> None:
    """And with the same object the rest can follow at once."""
    workspace = edited(tmp_path)
    outcome = workspace.apply(["g"], {"f": [spans(workspace)[0]]})

    assert (outcome.applied, outcome.partial, outcome.unapplied) == (("g",), ("f",), ("f",))
    assert workspace.apply().unapplied == ()
    assert gist(workspace.host) == {"f": Program(AFTER), "g": b"2"}


@pytest.mark.parametrize("side", ["host", "copy"])
def test_hunks_of_what_changed_meanwhile_are_a_conflict(tmp_path: Path, side: str) -> None:
    """On either side: the lines would be others than those that were shown."""
    workspace = edited(tmp_path)
    chosen = spans(workspace)
    grow(workspace.host if side == "host" else workspace.source, {"f": b"other\n" + BEFORE})
    before = gist(workspace.host)
    outcome = workspace.apply([], {"f": chosen[:1]})

    assert list(outcome.conflicts) == ["f"]
    assert gist(workspace.host) == before


@pytest.mark.parametrize(
    ("hunks", "words"),
    [
        ({"f": [Span(0, 99, 0, 1)]}, "f: .*no hunk of this file"),
        ({"x": [Span(0, 1, 0, 1)]}, "not among the changes: x"),
    ],
)
def test_hunks_that_do_not_fit_are_an_error(tmp_path: Path, hunks: dict[str, list[Span]], words: str) -> None:
    """Nothing is changed then."""
    workspace = edited(tmp_path)
    with pytest.raises(WorkspaceError, match=words):
        workspace.apply([], hunks)

    assert gist(workspace.host) == {"f": BEFORE, "g": b"1"}


def test_a_new_file_has_no_hunks_to_choose_from(tmp_path: Path) -> None:
    """It goes whole or not at all."""
    workspace = started(tmp_path, {})
    grow(workspace.source, {"n": b"1\n"})

    with pytest.raises(WorkspaceError, match="n: has no hunks"):
        workspace.apply([], {"n": [Span(0, 0, 0, 1)]})


def test_drift_names_what_others_changed(tmp_path: Path) -> None:
    """Changed, came, went, became something else; not what was only saved again, hidden, or applied by us."""
    shape = {"c": b"1", "same": b"1", "gone": b"1", "l": Link("a"), "t": b"1", "d": FOLDER, "k.pem": b"1", "mode": b"1"}
    workspace = started(tmp_path, {**shape, "f": b"1"}, masks=["*.pem"])
    assert workspace.drift() == ()
    grow(workspace.source, {"f": b"2"})
    assert workspace.apply().applied == ("f",)
    host = workspace.host
    for name in ("gone", "l", "t"):
        (host / name).unlink()
    grow(host, {"c": b"2", "same": b"1", "l": Link("b"), "t": FOLDER, "d/new": b"1", "k.pem": b"2"})
    (host / "mode").chmod(0o600)

    told = [(drift.path, drift.kind) for drift in workspace.drift()]

    assert told == [("c", "modified"), ("d/new", "added"), ("gone", "deleted"), ("l", "link"), ("t", "type")]


def test_drift_sees_a_change_with_the_old_time(tmp_path: Path) -> None:
    """The modification time can be set back; the kernel's time of change cannot."""
    workspace = started(tmp_path, {"f": b"1"})
    info = (workspace.host / "f").stat()
    (workspace.host / "f").write_bytes(b"2")
    os.utime(workspace.host / "f", ns=(info.st_atime_ns, info.st_mtime_ns))

    assert [drift.path for drift in workspace.drift()] == ["f"]


def test_commits_made_inside_are_known(tmp_path: Path) -> None:
    """By the folders of their repositories, so that a copy is not thrown away with them."""
    workspace = started(tmp_path, {".git/HEAD": b"ref: refs/heads/main\n", ".git/objects/x": b"", "n/.git/HEAD": b""})
    grow(workspace.source, {".git/refs/heads/main": b"1" * 40, "n/.git/index": b"1", "made/.git/HEAD": b""})
    assert kinds(workspace.changes()) == {"made": "added"}

    assert workspace.commits == (".git", "made/.git")
