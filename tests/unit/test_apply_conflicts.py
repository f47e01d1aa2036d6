"""Where a change does not fit the folder any more: nothing of the person's is overwritten, and it is told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, changed, gist, grow, picture, started

from sandbox_agent.workspaces.entries import examine
from sandbox_agent.workspaces.put import Conflict, Putter
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.source import TreeSource
from sandbox_agent.workspaces.tree import Tree

AS_ROOT = os.geteuid() == 0


def vanish(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def swap(what: object) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        if os.path.lexists(path):
            vanish(path)
        grow(path.parent, {path.name: what})  # type: ignore[dict-item]

    return do


def to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("path", "meanwhile", "reason"),
    [
        ("f", swap(b"theirs"), "was changed here meanwhile"),
        ("f", vanish, "was removed here meanwhile"),
        ("f", swap(Link("../victim")), "became a link here meanwhile"),
        ("f", swap(FOLDER), "became a folder here meanwhile"),
        ("f", to_fifo, "became a FIFO"),
        ("gone", swap(b"theirs"), "was changed here meanwhile"),
        ("new", swap(b"theirs"), "appeared here meanwhile, as a file"),
        ("new", swap(Link("../victim")), "appeared here meanwhile, as a link"),
        ("d/in", lambda path: swap(Link("../victims"))(path.parent), "its folder d is a link here"),
        ("d/in", lambda path: vanish(path.parent), "its folder d was removed here meanwhile"),
        ("d/in", lambda path: swap(b"")(path.parent), "its folder d is a file here"),
    ],
)
def test_what_the_person_changed_meanwhile_is_a_conflict(
    tmp_path: Path, path: str, meanwhile: Callable[[Path], None], reason: str
) -> None:
    """It is reported with the reason, nothing is overwritten, and every other change goes through."""
    grow(tmp_path, {"victim": b"v", "victims/in": b"v"})
    workspace = started(tmp_path, {"f": b"1", "gone": b"1", "d/in": b"1"})
    grow(workspace.source, {"f": b"2", "new": b"2", "d/in": b"2", "other": b"2"})
    (workspace.source / "gone").unlink()
    workspace.changes()
    meanwhile(workspace.host / path)
    left_alone = {p: what for p, what in picture(workspace.host).items() if p.split("/")[0] == path.split("/")[0]}

    outcome = workspace.apply()

    assert {p: why for p, why in outcome.conflicts.items() if reason in why} == outcome.conflicts != {}
    assert list(outcome.conflicts) == [path]
    assert path in outcome.unapplied
    assert {p: w for p, w in picture(workspace.host).items() if p.split("/")[0] == path.split("/")[0]} == left_alone
    assert (workspace.host / "other").read_bytes() == b"2"
    assert (tmp_path / "victim").read_bytes() + (tmp_path / "victims/in").read_bytes() == b"vv"


@pytest.mark.parametrize("what", [b"2", Link("t"), Program(b"1")])
@pytest.mark.parametrize("was", [b"1", Link("here"), None])
def test_a_change_in_the_last_moment_is_a_conflict(tmp_path: Path, what: object, was: bytes | Link | None) -> None:
    """Saved between the comparison and the rename, the person's content still wins."""
    host, copy = grow(tmp_path / "host", {} if was is None else {"f": was}), grow(tmp_path / "copy", {"f": what})  # type: ignore[dict-item]
    with Tree(host) as host_tree, Tree(copy) as copy_tree, host_tree.at("f") as place, copy_tree.at("f") as source:
        current = examine(place)
        kind = "mode" if isinstance(what, Program) and was == b"1" else "modified"
        difference = Difference("f", kind, current, examine(source))
        swap(b"theirs")(host / "f")
        with pytest.raises(Conflict, match="while it was being applied"):
            Putter(TreeSource(copy_tree), ".t-").put(difference, current, place)

    assert gist(host) == {"f": b"theirs"}


def test_the_person_having_made_the_same_change_is_no_conflict(tmp_path: Path) -> None:
    """Equal content on both sides is applied already."""
    workspace = changed(tmp_path, {"f": b"1"}, {"f": b"2", "n": b"2"})
    grow(workspace.host, {"f": b"2", "n": b"2"})

    assert workspace.apply().applied == ("f", "n")


def test_a_copy_changed_after_the_review_does_not_go(tmp_path: Path) -> None:
    """What was shown is what is applied: other bytes, a link and a FIFO planted between the two are refused."""
    grow(tmp_path, {"secret": b"s"})
    workspace = changed(
        tmp_path, {"a": b"1", "b": b"1", "c": b"1", "p/d": b"1"}, dict.fromkeys(("a", "b", "c", "p/d"), b"2")
    )
    before = gist(workspace.host)
    swap(b"3")(workspace.source / "a")
    swap(Link("../../secret"))(workspace.source / "b")
    to_fifo(workspace.source / "c")
    (workspace.source / "p").rename(workspace.source / "q")
    grow(workspace.source, {"p": Link("q")})
    outcome = workspace.apply()

    assert outcome.conflicts == dict.fromkeys(("a", "b", "c", "p/d"), "was changed inside after it was shown")
    assert gist(workspace.host) == before


@pytest.mark.parametrize("change", ["content", "mode"])
def test_a_hard_linked_file_is_a_conflict(tmp_path: Path, change: str) -> None:
    """Replacing it would part it from its other names, which may lie outside; deleting one name is fine."""
    host = grow(tmp_path / "host", {"a": b"1", "b": b"1"})
    os.link(host / "a", tmp_path / "outside")
    os.link(host / "b", tmp_path / "outside_b")
    workspace = started(tmp_path, {})
    if change == "content":
        (workspace.source / "a").write_bytes(b"2")
    else:
        (workspace.source / "a").chmod(0o755)
    (workspace.source / "b").unlink()
    outcome = workspace.apply()

    assert outcome.applied == ("b",)
    assert "2 hard links" in outcome.conflicts["a"]
    assert oct((tmp_path / "outside").stat().st_mode & 0o777) == "0o644"
    assert (tmp_path / "outside").read_bytes() + (tmp_path / "outside_b").read_bytes() == b"11"


def test_a_folder_that_still_holds_something_stays(tmp_path: Path) -> None:
    """Where the person added a file to a folder that is gone in the copy, the folder stays with it."""
    workspace = started(tmp_path, {"d/a": b"1", "e/x": FOLDER})
    shutil.rmtree(workspace.source / "d")
    shutil.rmtree(workspace.source / "e")
    workspace.changes()
    grow(workspace.host, {"d/mine": b"m", "e/x/mine": b"m"})
    outcome = workspace.apply()

    assert outcome.applied == ("d/a",)
    assert list(outcome.conflicts) == ["e/x"]
    assert gist(workspace.host) == {"d": None, "d/mine": b"m", "e": None, "e/x": None, "e/x/mine": b"m"}


def test_a_file_does_not_take_the_place_of_a_folder_that_holds_more(tmp_path: Path) -> None:
    """A folder with files the session never saw is not removed for the file that replaced it inside."""
    workspace = started(tmp_path, {"d/a": b"1", "d/.env": b"K"}, masks=[".env"])
    shutil.rmtree(workspace.source / "d")
    grow(workspace.source, {"d": b"now a file"})
    outcome = workspace.apply()

    assert list(outcome.conflicts) == ["d"]
    assert gist(workspace.host) == {"d": None, "d/.env": b"K"}


def test_someone_elses_file_is_not_taken_over(tmp_path: Path) -> None:
    """An ordinary user cannot give a replaced file back to its owner, so it is a conflict; root can."""
    host = grow(tmp_path / "host", {"f": b"1"})
    workspace = changed(tmp_path, {}, {"f": b"2"})
    assert workspace.host == host
    if AS_ROOT:
        os.chown(host / "f", 4321, 4321)

    assert workspace.apply().applied == ("f",)
    assert (host / "f").stat().st_uid == (4321 if AS_ROOT else os.geteuid())
