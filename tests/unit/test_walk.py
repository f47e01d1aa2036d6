"""Walking a folder: told once, then only what differs, however many processes look and whatever happens to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_agent.workspaces.inside import walk
from sandbox_agent.workspaces.inside.below import Below
from sandbox_agent.workspaces.inside.entry import FIELDS, record
from sandbox_agent.workspaces.inside.walk import Walk, entries_of, reached, shares_of

FOLDERS, FILES = 60, 3


class Shared(Walk):
    """A walk with as many processes as there are shares, whatever this machine has; `hurt` is done to each of them."""

    def __init__(self, root: Path, hurt: Callable[[], None] | None = None) -> None:
        super().__init__(Below(str(root)))
        self.processors = 3
        self.share_entries = 50
        self.hurt = hurt
        self.helpers = 0
        self.parent = os.getpid()

    def helper(self, paths: list[str], last: walk.Tree) -> Callable[[], walk.Seen | None]:
        self.helpers += 1
        return super().helper(paths, last)

    def share(self, paths: list[str], last: walk.Tree) -> walk.Seen:
        if self.hurt is not None and os.getpid() != self.parent:
            self.hurt()
        return super().share(paths, last)


def look(walking: Walk) -> tuple[set[str], set[str]]:
    """The paths told as new and those told as gone, the uppermost folder left out."""
    told = walking.take(False)
    fresh = {text.split(b" ", FIELDS)[-1].split(b"\0")[0] for text in told.fresh}
    gone = {text[:-1] for text in told.gone}
    walking.below.revoke()
    return {os.fsdecode(path) for path in fresh} - {""}, {os.fsdecode(path) for path in gone}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(FOLDERS * FILES):
        place = tmp_path / f"d{number // FILES % 6}" / f"s{number // FILES}" / f"f{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    return tmp_path


@pytest.fixture
def walking(tree: Path) -> Iterator[Shared]:
    made = Shared(tree)
    assert len(look(made)[0]) == FOLDERS * FILES + FOLDERS + 6
    yield made
    assert made.helpers, "it was to be shared out"


def test_nothing_is_told_twice(walking: Shared) -> None:
    """A second look at an untouched tree says nothing, and every share is looked at by a process of its own."""
    assert look(walking) == (set(), set())
    assert walking.helpers == 2


def test_what_differs_is_told_from_every_share(walking: Shared, tree: Path) -> None:
    """Changed, new, gone, moved, and of another sort; each with the folder that it is in."""
    (tree / "d0/s0/f0").write_bytes(b"changed")
    (tree / "d5/s59/f177").unlink()
    (tree / "d2/new/deep").mkdir(parents=True)
    (tree / "d2/new/deep/file").write_bytes(b"")
    (tree / "d3/s3").rename(tree / "d4/moved")
    (tree / "d1/s1/f3").unlink()
    (tree / "d1/s1/f3").symlink_to("f4")
    moved = {f"f{number}" for number in range(9, 12)}
    fresh, gone = look(walking)
    assert gone == {"d5/s59/f177", "d3/s3"} | {f"d3/s3/{name}" for name in moved}
    folders = {"d2", "d3", "d4", "d5/s59", "d1/s1"}
    new = {"d0/s0/f0", "d2/new", "d2/new/deep", "d2/new/deep/file", "d1/s1/f3", "d4/moved"}
    assert fresh == folders | new | {f"d4/moved/{name}" for name in moved}
    assert look(walking) == (set(), set())


def test_a_folder_that_became_a_link_is_not_gone_through(walking: Shared, tree: Path) -> None:
    """What lies behind it is not told, and what lay there is gone."""
    (tree / "d0").rename(tree / "aside")
    (tree / "d0").symlink_to("aside")
    fresh, gone = look(walking)
    assert {path.split("/")[0] for path in fresh} == {"d0", "aside"}
    assert len(fresh) == len(gone) + 2
    assert all(path.startswith("d0/") for path in gone)


def test_files_of_two_file_systems_are_no_hard_links() -> None:
    """They may have one number in an overlay. A file with one name keeps its own when the layers are mounted anew."""
    one, other = (record(((0o100644, 21, device, 2, 0, 0, 0), 1, 1), b"a") for device in (181, 182))
    assert one != other
    one, other = (record(((0o100644, 21, device, 1, 0, 0, 0), 1, 1), b"a") for device in (181, 182))
    assert one == other


def test_what_hangs_nowhere_is_left_out() -> None:
    """A folder that was moved between two looks of one walk may have been seen under both names."""
    tree = {"": (b"", 1, ("new",)), "new": (b"", 1, ()), "old": (b"", 1, ("deep",)), "old/deep": (b"", 0, ())}
    assert reached(tree).keys() == {"", "new"}


def test_a_closed_folder_is_opened_for_the_look_only(walking: Shared, tree: Path) -> None:
    """Its content is known as before, and its mode is what it was; as its owner and as root alike."""
    (tree / "d0/s0").chmod(0)
    (tree / "d0").chmod(0o300)
    assert look(walking)[1] == set()
    assert (tree / "d0").stat().st_mode & 0o777 == 0o300
    assert (tree / "d0/s0").stat().st_mode & 0o777 == 0
    (tree / "d0").chmod(0o755)
    (tree / "d0/s0").chmod(0o755)
    assert "d0/s0/f0" not in look(walking)[0]


@pytest.mark.parametrize("hurt", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)])
def test_a_process_that_was_killed_is_made_up_for(tree: Path, hurt: Callable[[], None]) -> None:
    """Its share is looked at all the same, and no process is left."""
    walking = Shared(tree, hurt)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    look(walking)
    folder = shares_of(walking.last, 3, 50)[-1][-1]
    name = os.listdir(tree / folder)[0]
    (tree / folder / name).unlink()
    assert look(walking) == ({folder}, {f"{folder}/{name}"})
    assert children.read_text() == before


def test_no_descriptor_is_left_open(walking: Shared) -> None:
    """A session looks thousands of times."""
    look(walking)
    before = len(os.listdir("/proc/self/fd"))
    look(walking)
    assert len(os.listdir("/proc/self/fd")) == before


def test_shares_are_about_equal_and_hold_every_folder_once(walking: Shared) -> None:
    """Neighbours together; few entries are not worth a process, and there are never more shares than processors."""
    last = walking.last
    shares = shares_of(last, 2, 50)
    assert [path for share in shares for path in share] == list(last)
    sizes = [sum(last[path][1] for path in share) for share in shares]
    assert max(sizes) < 1.2 * entries_of(last) / 2
    assert shares_of({"": (b"", 60, ())}, 8, 50) == [[""]]
    assert len(shares_of(last, 1, 50)) == 1
    assert shares_of({}, 8, 50) == [[""]]
    look(walking)
