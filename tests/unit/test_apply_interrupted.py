"""An apply that is killed: at every one of its steps a process is ended by SIGKILL, and another one takes it up.

The steps are the calls that change something in a file system, counted by an audit hook of the killed process itself:
the product has no place for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from workspace_trees import FOLDER, Link, Program, Shape, gist, grow, kinds, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.hunks import hunks_of
from sandbox_agent.workspaces.ledger import interrupted
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.record import Record
from sandbox_agent.workspaces.store import Store

CHANGING = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.chmod", "os.chown"}


BEFORE: Shape = {
    "m": b"1",
    "d/only": b"1",
    "t": b"1",
    "f/inner": b"1",
    "f/deep/er": FOLDER,
    "x": b"1",
    "l": Link("old"),
    "hunks": b"".join(b"%d\n" % n for n in range(40)),
}
AFTER: Shape = {
    "m": Program(b"2"),
    "t/now/folder": b"x",
    "f": b"now a file",
    "new/sub/one": b"n",
    "new/sub/two": b"n",
    "l": Link("new"),
    "hunks": b"first\n" + b"".join(b"%d\n" % n for n in range(39)) + b"last\n",
}


def prepared(folder: Path) -> tuple[Path, Path]:
    """(host, copy) of a session that made AFTER of BEFORE."""
    workspace = started(folder, BEFORE)
    copy = workspace.source
    shutil.rmtree(copy / "d")
    shutil.rmtree(copy / "f")
    for name in ("t", "l"):
        (copy / name).unlink()
    grow(copy, AFTER)
    (copy / "x").chmod(0o755)
    return workspace.host, copy


def killed_at(last: int, folder: Path) -> bool:
    """Apply everything, and of "hunks" the first hunk, in a process that ends with its step `last`."""
    workspace = reopen(folder / "state")
    changes = {change.path: change for change in workspace.changes()}
    hunks = {"hunks": [hunks_of(changes.pop("hunks").diff or "")[0].span]}
    count = 0

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in CHANGING or (event == "open" and arguments[2] & (os.O_CREAT | os.O_WRONLY)):
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        sys.addaudithook(step)
        workspace.apply(list(changes), hunks)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_every_file_is_old_or_new_and_the_next_apply_completes_it(tmp_path: Path) -> None:
    """Wherever it was killed: no half file under a real name, nothing of ours left over, nothing lost."""
    step, was_interrupted = 0, 0
    while True:
        step += 1
        folder = tmp_path / str(step)
        host, copy = prepared(folder)
        old, new = gist(host), gist(copy)
        if not killed_at(step, folder):
            break
        prefix = Record.load(folder / "state").temporary_prefix
        for path, what in gist(host).items():
            partly = path == "hunks" and isinstance(what, bytes) and what.startswith(b"first\n0\n")
            assert prefix in path or partly or what in (old.get(path), new.get(path), FOLDER), (step, path)
        was_interrupted += interrupted(folder / "state")
        again = reopen(folder / "state")
        again.settle()
        assert not interrupted(folder / "state")
        outcome = again.apply([change.path for change in again.changes()])

        assert outcome.conflicts == {}, step
        assert gist(host) == new, step
        assert reopen(folder / "state").changes() == ()
        shutil.rmtree(folder)

    assert step > 40
    assert was_interrupted > 25


def test_an_interrupted_apply_brings_exactly_what_was_chosen(tmp_path: Path) -> None:
    """Taken up again it neither forgets a part nor adds one, and a file's hunks stay the chosen ones."""
    host, _ = prepared(tmp_path)
    assert killed_at(40, tmp_path)
    assert interrupted(tmp_path / "state")
    outcome = reopen(tmp_path / "state").settle()

    assert outcome is not None
    assert (outcome.conflicts, outcome.partial) == ({}, ("hunks",))
    assert (host / "hunks").read_bytes() == b"first\n" + b"".join(b"%d\n" % n for n in range(40))
    assert kinds(reopen(tmp_path / "state").changes()) == {"hunks": "modified"}
    assert reopen(tmp_path / "state").settle() is None


def test_what_the_person_did_after_the_interruption_stays(tmp_path: Path) -> None:
    """A file they changed before the second apply is a conflict, as at any other time."""
    host, _ = prepared(tmp_path)
    assert killed_at(30, tmp_path)
    for path in ("m", "hunks"):
        if (host / path).read_bytes() in (b"1", BEFORE["hunks"]):
            (host / path).write_bytes(b"mine")
    mine = {path for path in ("m", "hunks") if (host / path).read_bytes() == b"mine"}
    outcome = reopen(tmp_path / "state").settle()

    assert outcome is not None
    assert mine
    assert set(outcome.conflicts) == mine
    assert {path for path in ("m", "hunks") if (host / path).read_bytes() == b"mine"} == mine


def test_before_images_stay_when_the_copy_is_gone(tmp_path: Path) -> None:
    """Everything that was replaced or removed can be had again."""
    _, copy = prepared(tmp_path)
    workspace = reopen(tmp_path / "state")
    assert workspace.apply([change.path for change in workspace.changes()]).unapplied == ()
    workspace.discard()
    store = Store(tmp_path / "state" / "applied" / "before")

    kept = {store.read(path.parent.name + path.name, 1000) for path in store.folder.glob("??/*")}
    assert {b"1", BEFORE["hunks"]} <= kept
    assert (tmp_path / "state" / "applied" / "000000.json").exists()
    assert not copy.exists()


def test_a_damaged_record_stops_the_next_apply(tmp_path: Path) -> None:
    """What was under way is not guessed."""
    prepared(tmp_path)
    (tmp_path / "state" / "applying.json").write_text("{")

    with pytest.raises(WorkspaceError, match="interrupted apply cannot be used"):
        reopen(tmp_path / "state").apply()


def test_what_cannot_be_kept_is_not_replaced(tmp_path: Path) -> None:
    """Without room for the before-image the file stays as it is, and the reason is told."""
    host, _ = prepared(tmp_path)
    (tmp_path / "state" / "applied").mkdir()
    (tmp_path / "state" / "applied" / "before").write_text("in the way")
    outcome = reopen(tmp_path / "state").apply(["m", "d"])

    assert {path: why[:46] for path, why in outcome.conflicts.items()} == dict.fromkeys(
        ("d/only", "m"), "what is there now cannot be kept before it goe"
    )
    assert (host / "m").read_bytes() == b"1"
    assert os.path.exists(host / "d/only")
