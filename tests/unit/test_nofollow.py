"""Host-side opens below a workspace never follow a link, never wait, and take any name."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest
from workspace_trees import Link, grow

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.nofollow import FOLDER_FLAGS, NotRegularError, encode, open_by_parts, open_folder
from sandbox_agent.workspaces.removal import remove_tree
from sandbox_agent.workspaces.tree import Tree

NAMES = ["plain", "-rf", "new\nline", "späce ü", "quote'\"\\", "\udcff\udcfe", "\u202egnp.exe", " ", "..."]


def read(root: Path, path: str) -> bytes:
    with Tree(root) as opened, opened.at(path) as place:
        return place.read_bytes(1000)


def refused(root: Path, path: str) -> int | None:
    with pytest.raises(OSError) as caught:
        read(root, path)
    return caught.value.errno


def test_a_link_is_not_read(tmp_path: Path) -> None:
    """A link to a file outside is refused as a link."""
    grow(tmp_path, {"secret": b"s", "root/link": Link("../secret"), "root/inner": Link("file"), "root/file": b"f"})

    assert {refused(tmp_path / "root", name) for name in ("link", "inner")} == {errno.ELOOP}


def test_a_folder_that_is_a_link_is_not_gone_through(tmp_path: Path) -> None:
    """A link in the middle of a path is refused, also one that stays inside."""
    grow(tmp_path, {"etc/passwd": b"s", "root/out": Link("../etc"), "root/a/b/c": b"f", "root/in": Link("a")})

    assert {refused(tmp_path / "root", path) for path in ("out/passwd", "in/b/c")} == {errno.ELOOP}


def test_a_root_below_a_link_is_refused(tmp_path: Path) -> None:
    """The folder itself must not be reached through a link either."""
    grow(tmp_path, {"real/root/f": b"f", "way": Link("real")})

    with pytest.raises(OSError) as caught:
        Tree(tmp_path / "way" / "root")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("path", ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b"])
def test_only_plain_relative_paths_are_taken(path: str) -> None:
    """Anything with a way out, a NUL or an empty part is no path."""
    with pytest.raises(OSError) as caught:
        encode(path)

    assert caught.value.errno == errno.EINVAL


def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    """A FIFO nobody writes to, a socket and a folder fail at once."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))

        for name in ("fifo", "socket", "folder"):
            with pytest.raises(NotRegularError):
                read(tmp_path, name)


def test_a_file_swapped_for_a_fifo_is_never_taken_for_a_file(tmp_path: Path) -> None:
    """Against somebody who swaps the two all the time, each read gives the file's bytes or a refusal, and returns."""
    grow(tmp_path, {"file": b"content"})
    os.mkfifo(tmp_path / "fifo")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for name in ("fifo", "file"):
                os.link(tmp_path / name, tmp_path / "next")
                os.rename(tmp_path / "next", tmp_path / "target")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                seen.add(read(tmp_path, "target"))
            except (NotRegularError, FileNotFoundError):
                continue
    finally:
        done.set()
        swapper.join()

    assert seen <= {b"content"}


def test_any_name_travels_unchanged(tmp_path: Path) -> None:
    """Names with newlines, dashes, bidi marks and bytes that are no UTF-8 are listed and read."""
    grow(tmp_path, {name: name.encode("utf-8", "surrogateescape") for name in NAMES})

    with Tree(tmp_path) as opened:
        listed = [found.path for found in opened.listing("")]

    assert sorted(listed) == sorted(NAMES)
    assert [read(tmp_path, name) for name in NAMES] == [name.encode("utf-8", "surrogateescape") for name in NAMES]


def test_opening_by_parts_refuses_what_openat2_refuses(tmp_path: Path) -> None:
    """The way for kernels without openat2 gives the same folders and the same refusals."""
    grow(tmp_path, {"a/b/c": b"", "link": Link("a"), "a/up": Link("..")})
    root = os.open(tmp_path, FOLDER_FLAGS)
    outcomes = []
    for path in (b"a/b", b"link/b", b"a/up", b"a/missing", b"a/b/c"):
        row = []
        for way in (lambda p: open_folder(root, p), lambda p: open_by_parts(root, p)):
            try:
                fd = way(path)
                row.append(os.fstat(fd).st_ino)
                os.close(fd)
            except OSError as error:
                row.append(error.errno)
        outcomes.append(row)
    os.close(root)

    assert all(by_kernel == by_parts for by_kernel, by_parts in outcomes), outcomes
    assert [row[0] for row in outcomes[1:]] == [errno.ELOOP, errno.ELOOP, errno.ENOENT, errno.ENOTDIR]


def test_a_staged_file_shows_only_whole(tmp_path: Path) -> None:
    """The old content stays until the commit, and nothing is left without one."""
    grow(tmp_path, {"f": b"old"})
    with Tree(tmp_path) as opened, opened.at("f") as place:
        with place.stage(".t-") as staged:
            os.write(staged.fd, b"lost")
        assert (tmp_path / "f").read_bytes() == b"old"
        with place.stage(".t-") as staged:
            os.write(staged.fd, b"new")
            staged.commit(replace=True)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"f": b"new"}


def test_a_new_file_never_replaces_one_that_appeared(tmp_path: Path) -> None:
    """A commit without `replace` fails when the name was taken meanwhile, by a link too."""
    with Tree(tmp_path) as opened, opened.at("f") as place, place.stage(".t-") as staged:
        (tmp_path / "f").symlink_to("elsewhere")
        with pytest.raises(FileExistsError):
            staged.commit(replace=False)

    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert os.readlink(tmp_path / "f") == "elsewhere"


def test_a_committed_new_file_has_one_name(tmp_path: Path) -> None:
    """No hard link of the temporary name is left behind."""
    with Tree(tmp_path) as opened, opened.at("f") as place, place.stage(".t-") as staged:
        staged.commit(replace=False)

    assert [(path.name, path.stat().st_nlink) for path in tmp_path.iterdir()] == [("f", 1)]


def test_acting_stays_in_the_opened_folder(tmp_path: Path) -> None:
    """A folder swapped for a link after it was opened does not move the write elsewhere."""
    grow(tmp_path, {"root/folder": None, "victim": None})
    with Tree(tmp_path / "root") as opened, opened.at("folder/f") as place:
        (tmp_path / "root/folder").rename(tmp_path / "root/moved")
        (tmp_path / "root/folder").symlink_to(tmp_path / "victim")
        with place.stage(".t-") as staged:
            staged.commit(replace=True)

    assert os.listdir(tmp_path / "victim") == []
    assert os.listdir(tmp_path / "root/moved") == ["f"]


def test_a_walk_goes_through_no_link_and_tells_what_it_cannot_list(tmp_path: Path) -> None:
    """Links are entries, not ways; a tree nested deeper than a path may be long is told and left."""
    grow(tmp_path, {"out/x": b"", "root/link": Link("../out"), "root/a/f": b""})
    fd = os.open(tmp_path / "root/a", FOLDER_FLAGS)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=fd)
        deeper = os.open("d" * 200, FOLDER_FLAGS, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    failures: list[int | None] = []
    with Tree(tmp_path / "root") as opened:
        paths = [found.path for found in opened.walk(failed=lambda _, error: failures.append(error.errno))]

    assert [path for path in paths if "d" * 200 not in path] == ["a", "link", "a/f"]
    assert failures == [errno.ENAMETOOLONG]
    remove_tree(tmp_path, "root")


def test_our_own_copy_is_read_whatever_its_modes(tmp_path: Path) -> None:
    """`chmod 000` inside does not hide anything from the review of our own copy."""
    grow(tmp_path, {"a/b/f": b"x"})
    for path in ("a/b/f", "a/b", "a"):
        (tmp_path / path).chmod(0)
    with Tree(tmp_path, grant=True) as opened:
        paths = [found.path for found in opened.walk(failed=lambda path, _: pytest.fail(path))]
        with opened.at("a/b/f") as place:
            content = place.read_bytes(10)

    assert (paths, content) == (["a", "a/b", "a/b/f"], b"x")


def test_removal_stays_inside_and_needs_no_mercy_of_modes(tmp_path: Path) -> None:
    """Links go and not what they lead to; folders without permissions and 300 levels deep go too."""
    grow(tmp_path, {"victim/f": b"x", "state/t/link": Link("../../victim"), "state/t/shut/f": b"", "state/kept": b"k"})
    (tmp_path / "state/t/shut").chmod(0)
    fd = os.open(tmp_path / "state/t", FOLDER_FLAGS)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=fd)
        deeper = os.open("d" * 50, FOLDER_FLAGS, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)

    remove_tree(tmp_path / "state", "t")
    remove_tree(tmp_path / "state", "t")

    assert os.listdir(tmp_path / "state") == ["kept"]
    assert (tmp_path / "victim/f").read_bytes() == b"x"


def test_removal_finishes_what_an_interrupted_one_left(tmp_path: Path) -> None:
    """Folders that were moved aside before the end came are found again."""
    grow(tmp_path, {".removing-0123456789abcdef/x/f": b"", "other": b""})

    remove_tree(tmp_path, "gone")

    assert os.listdir(tmp_path) == ["other"]


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    """More entries than fit in memory end the walk with one line."""
    grow(tmp_path, {"a": b"", "b": b"", "c": b""})

    with Tree(tmp_path) as opened, pytest.raises(WorkspaceError, match="more than 2 files"):
        list(opened.walk(failed=lambda *_: None, max_entries=2))


def test_without_openat2_folders_open_by_parts(tmp_path: Path) -> None:
    """Where the system call is missing or forbidden, the other way takes its place."""
    grow(tmp_path, {"a/b/f": b""})
    root = os.open(tmp_path, FOLDER_FLAGS)

    def missing(folder_fd: int, path: bytes, flags: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    fd = open_folder(root, b"a/b", missing)
    listed = os.listdir(fd)
    os.close(fd)
    os.close(root)

    assert listed == ["f"]
