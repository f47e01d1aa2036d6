"""A review from the last checkpoint: the same as one of the tree, without opening the tree."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, Shape, gist, grow, kinds, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.record import MANIFEST_NAME, Record
from sandbox_agent.workspaces.snapshot import Node, snapshot_of
from sandbox_agent.workspaces.source import ContentError, LateSource, Source, TreeSource
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Loaded, Step, Steps
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.stored import StoredSource, end_at, go_on
from sandbox_agent.workspaces.tree import Tree

_KINDS = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.LINK}


def checkpoint(workspace: CopyWorkspace, *, lost: str = "") -> None:
    """What a last checkpoint leaves: contents that changed are stored, the others are the base's."""
    state = workspace.source.parent
    steps, manifest = Steps(state / CHECKPOINTS_NAME), Manifest.load(state / MANIFEST_NAME)
    nodes = {}
    for folder, folders, files in os.walk(workspace.source):
        for name in folders + files:
            path = Path(folder, name)
            key, info = str(path.relative_to(workspace.source)), path.lstat()
            kind = _KINDS.get(stat.S_IFMT(info.st_mode), Kind.OTHER)
            sha256 = steps.store.put(path.read_bytes()) if kind is Kind.FILE and key != lost else None
            known = manifest.entries.get(key)
            sha256 = None if known is not None and known.sha256 == sha256 else sha256
            target = os.readlink(path) if kind is Kind.LINK else None
            size = info.st_size if kind is Kind.FILE else 0
            nodes[key] = Node(
                kind, stat.S_IMODE(info.st_mode), size, sha256 or ("0" * 64 if key == lost else None), target
            )
    snapshot = snapshot_of(nodes)
    token = Record.load(state).token
    steps.write(Step(0, "base", snapshot.tree_sha256, time.time(), token), snapshot.nodes)
    end_at(state, 0)


BEFORE: Shape = {
    "m": b"1\n",
    "d": b"1",
    "x": b"1",
    "t": b"1",
    "l": Link("a"),
    "gone/sub": FOLDER,
    "same": b"s",
    "keep/e": FOLDER,
    "bin": b"\0\1",
    ".git/config": b"[core]\n",
    ".git/HEAD": b"ref: refs/heads/main\n",
    ".git/refs/heads/main": b"0" * 40,
}
AFTER: Shape = {
    "m": b"2\n",
    "a/b": b"new",
    "empty/er": FOLDER,
    "t/inner": b"",
    "l": Link("b"),
    "bin": b"\0\2",
    "run": Program(b"#!/bin/sh\n"),
    "\nodd\udcff": b"o",
    ".git/refs/heads/main": b"1" * 40,
    ".git/hooks/pre-push": Program(b"x"),
    "F/HEAD": b"",
    "F/objects/o": b"",
    "F/refs/r": b"",
}


def worked(tmp_path: Path) -> CopyWorkspace:
    """A copy of BEFORE in which AFTER, deletions and an executable bit were made."""
    workspace = started(tmp_path, BEFORE)
    for name in ("d", "t", "l"):
        (workspace.source / name).unlink()
    shutil.rmtree(workspace.source / "gone")
    grow(workspace.source, AFTER)
    (workspace.source / "x").chmod(0o755)
    return workspace


def test_it_says_the_same_as_a_review_of_the_tree(tmp_path: Path) -> None:
    """Kinds, digests, diffs, dangers and notes; with the tree gone."""
    workspace = worked(tmp_path)
    changes, notes, commits = workspace.changes(), workspace.notes, workspace.commits
    checkpoint(workspace)
    for name in os.listdir(workspace.source):
        path = workspace.source / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    stored = reopen(tmp_path / "state")

    assert stored.changes() == changes
    assert stored.notes == notes
    assert stored.commits == commits == (".git",)


def test_a_look_while_the_session_goes_on_is_the_same_and_opens_no_tree(tmp_path: Path) -> None:
    """Of any checkpoint that there is; what was looked at is not what is applied."""
    workspace = worked(tmp_path)
    changes = workspace.changes()
    checkpoint(workspace)
    go_on(tmp_path / "state")
    running = reopen(tmp_path / "state")
    shutil.rmtree(workspace.source)

    assert running.changes_at(0) == changes
    with pytest.raises(WorkspaceError, match="step 1"):
        running.changes_at(1)
    grow(workspace.source, {"only": b"this"})
    applied = running.apply().applied
    assert ("only" in applied, "a/b" in applied) == (True, False)


def test_it_is_applied_from_the_store(tmp_path: Path) -> None:
    """Whatever became of the tree since; afterwards nothing is left to show."""
    workspace = worked(tmp_path)
    checkpoint(workspace)
    expected = {path: what for path, what in gist(workspace.source).items() if not path.startswith(".git")}
    grow(workspace.source, {"m": b"evil\n", "run": Program(b"evil")})
    stored = reopen(tmp_path / "state")
    everything = [change.path for change in stored.changes()]
    outcome = stored.apply(everything)

    assert (outcome.conflicts, outcome.unapplied) == ({}, ())
    assert {p: what for p, what in gist(workspace.host).items() if not p.startswith(".git")} == expected
    assert reopen(tmp_path / "state").changes() == ()


def test_a_file_that_changed_in_the_folder_still_has_its_diff(tmp_path: Path) -> None:
    """The start's content is known when a checkpoint kept it, and applying is a conflict all the same."""
    workspace = started(tmp_path, {"f": b"one\n"})
    grow(workspace.source, {"f": b"two\n"})
    checkpoint(workspace)
    Steps(tmp_path / "state" / CHECKPOINTS_NAME).store.put(b"one\n")
    grow(workspace.host, {"f": b"mine\n"})
    stored = reopen(tmp_path / "state")

    assert "-one\n+two\n" in (stored.changes()[0].diff or "")
    assert stored.apply().conflicts == {"f": "was changed here meanwhile"}
    assert (workspace.host / "f").read_bytes() == b"mine\n"


def test_a_content_that_was_not_kept_comes_from_the_copy_or_is_a_conflict(tmp_path: Path) -> None:
    """Too large for a checkpoint: the tree may have it, but only if it is what was seen."""
    workspace = started(tmp_path, {})
    grow(workspace.source, {"big": b"b", "small": b"s"})
    checkpoint(workspace, lost="big")
    outcome = reopen(tmp_path / "state").apply()

    assert outcome.applied == ("small",)
    assert outcome.conflicts == {"big": "was changed inside after it was shown"}


def test_a_damaged_content_is_a_conflict(tmp_path: Path) -> None:
    """What is in the store is checked before it goes anywhere."""
    workspace = started(tmp_path, {})
    grow(workspace.source, {"f": b"good"})
    checkpoint(workspace)
    [path] = (tmp_path / "state" / CHECKPOINTS_NAME / "store").glob("*/*")
    path.write_bytes(b"evil")
    outcome = reopen(tmp_path / "state").apply()

    assert list(outcome.conflicts) == ["f"]
    assert os.listdir(workspace.host) == []


def test_work_that_goes_on_is_reviewed_from_the_tree_again(tmp_path: Path) -> None:
    """Until its next last checkpoint."""
    workspace = started(tmp_path, {})
    grow(workspace.source, {"f": b"1"})
    checkpoint(workspace)
    grow(workspace.source, {"g": b"2"})

    assert kinds(reopen(tmp_path / "state").changes()) == {"f": "added"}
    go_on(tmp_path / "state")
    assert kinds(reopen(tmp_path / "state").changes()) == {"f": "added", "g": "added"}


def test_a_damaged_mark_is_one_line(tmp_path: Path) -> None:
    """It is not taken for "no checkpoint"."""
    workspace = started(tmp_path, {})
    (tmp_path / "state" / "last-step.json").write_text("{}")

    with pytest.raises(WorkspaceError, match=r"last-step\.json: cannot be used"):
        workspace.changes()


def test_the_layers_are_looked_at_only_for_what_was_not_kept(tmp_path: Path) -> None:
    """Looking costs a mount, and may be impossible: then the one content is not to be had, and says why."""
    workspace = started(tmp_path, {})
    grow(workspace.source, {"big": b"b", "small": b"s"})
    checkpoint(workspace, lost="big")
    looks = []

    @contextmanager
    def layers() -> Iterator[Source]:
        looks.append(1)
        if len(looks) == 2:
            raise OSError(errno.EPERM, "not permitted")
        with Tree(workspace.source) as tree:
            yield TreeSource(tree)

    source = StoredSource.of(tmp_path / "state", spare=LateSource(layers))
    assert source is not None
    found = source.scan(Manifest.load(tmp_path / "state" / MANIFEST_NAME), Notes()).entries
    contents = {}
    for path in ("small", "big"):
        with source.open(path, found[path]) as fd:
            contents[path] = os.read(fd, 10)

    assert contents == {"small": b"s", "big": b"b"}
    assert looks == [1]
    with pytest.raises(ContentError, match="not permitted"), source.open("big", found["big"]):
        pass


@pytest.mark.parametrize(("content", "differs"), [(None, False), ("b" * 64, True)], ids=["undone", "changed"])
def test_commits_that_were_undone_are_none(tmp_path: Path, content: str | None, differs: bool) -> None:
    """A ref that is again what it was tells of no commits, also where the folder was not hashed at the start."""
    path, size = ".git/refs/heads/main", 40
    node = Node(Kind.FILE, 0o644, size, content)
    loaded = Loaded(Step(0, "undo", "0" * 64, 0.0, "t"), snapshot_of({path: node}), {path: "a" * 64})
    manifest = Manifest({path: Entry(Kind.FILE, None, 0o644, size)})

    scan = StoredSource(loaded, Store(tmp_path)).scan(manifest, Notes())

    assert scan.git_differs(path) is differs


def test_an_empty_file_needs_no_store(tmp_path: Path) -> None:
    """The checkpoint never asks for what is in it, so no store has it, and a copy in a volume has no other source."""
    empty = Entry(Kind.FILE, hashlib.sha256(b"").hexdigest())
    step = Step(0, "base", "", 0.0, "token")
    source = StoredSource(Loaded(step, snapshot_of({}), {}), Store(tmp_path / "store"))

    with source.open("any", empty) as fd:
        assert os.read(fd, 10) == b""
