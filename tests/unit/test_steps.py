"""Steps on disk: folded back to trees, whole or not at all, numbered on, and shared with forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import LOST_TOO_LARGE, Node, snapshot_of
from sandbox_agent.workspaces.steps import Step, Steps, step_before

FOLDER = Node(Kind.DIRECTORY, 0o755)
BASE = {"": FOLDER, "a": Node(Kind.FILE, 0o644, 3), "b": Node(Kind.FILE, 0o644, 3)}


def step(number: int, origin: str = "calls", workspace: str = "w1", **more: object) -> Step:
    return Step(number, origin, "0" * 64, 1.0, workspace, **more)  # type: ignore[arg-type]


def file(sha256: str, flag: str | None = None) -> Node:
    return Node(Kind.FILE, 0o644, 3, sha256, flag=flag)


def filled(folder: Path) -> Steps:
    """Three steps of one workspace: the base, a change with a new content, and a deletion."""
    steps = Steps(folder)
    steps.write(step(0, "base"), BASE)
    one = steps.store.put(b"one")
    steps.write(step(1, call_ids=("c1",), after_seq=5, bases={"a": steps.store.put(b"old")}), {"a": file(one)})
    steps.write(step(2, after_seq=9), {}, ["b"])
    return steps


def test_a_step_is_the_fold_of_all_up_to_it(tmp_path: Path) -> None:
    """Changes and deletions of later steps are not in it, what became known of the base is."""
    steps = filled(tmp_path)
    loaded = steps.load(0)
    assert loaded.snapshot == snapshot_of(BASE)
    assert loaded.bases == {"a": steps.store.put(b"old")}
    assert steps.load(2).snapshot == snapshot_of({"": FOLDER, "a": file(steps.store.put(b"one"))})
    assert [one.call_ids for one in steps.headers()] == [(), ("c1",), ()]


def test_a_step_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With those that are."""
    with pytest.raises(WorkspaceError, match="no step 0; there are none"):
        Steps(tmp_path / "none").load(0)
    with pytest.raises(WorkspaceError, match="no step 7; steps are 0 to 2"):
        filled(tmp_path).header(7)


def test_a_damaged_step_is_said_and_the_others_stand(tmp_path: Path) -> None:
    """The file is named."""
    steps = filled(tmp_path)
    path = tmp_path / "000002.step"
    path.write_bytes(path.read_bytes()[:-4])
    assert steps.load(1).step.number == 1
    with pytest.raises(WorkspaceError, match=r"000002\.step"):
        steps.load(2)


def test_a_step_that_was_being_written_is_none(tmp_path: Path) -> None:
    """What a killed writer left is swept."""
    steps = filled(tmp_path)
    (tmp_path / "000003.step.part").write_bytes(b"half")
    steps.sweep()
    assert steps.numbers() == [0, 1, 2]
    assert not (tmp_path / "000003.step.part").exists()


def test_a_new_workspace_begins_with_a_whole_step(tmp_path: Path) -> None:
    """Numbers go on, trees do not mix."""
    steps = filled(tmp_path)
    steps.write(step(3, "base", "w2"), {"": FOLDER})
    steps.write(step(4, workspace="w2"), {"n": FOLDER})
    assert steps.load(4).snapshot == snapshot_of({"": FOLDER, "n": FOLDER})
    assert steps.load(2).snapshot.nodes.keys() == {"", "a"}
    assert steps.load(4).bases == {}


def test_numbers_go_on_after_all_was_discarded(tmp_path: Path) -> None:
    """The record of the session names the old ones still."""
    steps = filled(tmp_path)
    steps.discard()
    steps.discard()
    assert (steps.numbers(), steps.next_number()) == ([], 3)
    assert not steps.store.folder.exists()


def test_an_interrupted_restore_is_known(tmp_path: Path) -> None:
    """Until it has ended."""
    steps = filled(tmp_path)
    steps.begin_restore(1)
    assert Steps(tmp_path).restoring() == 1
    steps.end_restore()
    assert steps.restoring() is None


def test_a_fork_has_the_tree_and_its_contents_for_itself(tmp_path: Path) -> None:
    """Whatever becomes of the session it comes from."""
    steps, child = filled(tmp_path / "parent"), Steps(tmp_path / "child")
    tree, one, old = steps.load(1).snapshot, steps.store.put(b"one"), steps.store.put(b"old")
    steps.share(1, child)
    steps.discard()
    wanted = child.wanted()
    assert wanted is not None
    assert (wanted.step.number, wanted.snapshot, wanted.bases) == (1, tree, {"a": old})
    assert (child.store.read(one, 9), child.store.read(old, 9)) == (b"one", b"old")
    assert child.is_wanted
    child.fulfilled()
    assert (child.wanted(), child.is_wanted) == (None, False)


def test_a_step_without_all_contents_cannot_be_forked(tmp_path: Path) -> None:
    """The path is named; a later step that has it again can."""
    steps = filled(tmp_path / "parent")
    steps.write(step(3), {"a": file("f" * 64, LOST_TOO_LARGE)})
    steps.write(step(4), {}, ["a"])
    with pytest.raises(WorkspaceError, match="without the content of a"):
        steps.share(3, Steps(tmp_path / "one"))
    steps.share(4, Steps(tmp_path / "two"))


def test_a_fork_that_never_began_keeps_what_it_begins_with(tmp_path: Path) -> None:
    """Removing a workspace that was never used is not the end of it."""
    child = Steps(tmp_path / "child")
    filled(tmp_path / "parent").share(1, child)
    child.discard()
    wanted = child.wanted()
    assert wanted is not None
    assert child.store.has(wanted.snapshot.nodes["a"].sha256 or "")


@pytest.mark.parametrize(
    ("current", "first", "before"), [(step(2), 0, 1), (step(9, restored=2), 0, 1), (step(4), 3, 3)]
)
def test_one_step_back_is_from_the_tree_that_is_there(current: Step, first: int, before: int) -> None:
    """An undo made the tree of an earlier step current: the next one goes on from that."""
    assert step_before(current, first) == before


@pytest.mark.parametrize(("current", "first"), [(step(0, "base"), 0), (step(3, "undo", restored=0), 0), (step(5), 5)])
def test_nothing_lies_before_the_first_step(current: Step, first: int) -> None:
    """It is said, and no undo is made of it."""
    with pytest.raises(WorkspaceError, match=f"nothing lies before step {first}"):
        step_before(current, first)
