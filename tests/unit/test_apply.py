"""Bringing changes to the folder: only what was chosen, only over what is still there, never through a link."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, changed, gist, grow, kinds, picture, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ApplyOutcome
from sandbox_agent.workspaces.opening import reopen

AS_ROOT = os.geteuid() == 0


def test_all_changes_reach_the_folder(tmp_path: Path) -> None:
    """Afterwards the folder is the copy, and a later review has nothing left to show."""
    workspace = started(
        tmp_path, {"m": b"1", "d/only": b"1", "t": b"1", "e/mpty": FOLDER, "f/inner": b"1", "keep": b""}
    )
    copy = workspace.source
    shutil.rmtree(copy / "d")
    shutil.rmtree(copy / "e")
    shutil.rmtree(copy / "f")
    (copy / "t").unlink()
    grow(copy, {"m": Program(b"2"), "t/now/folder": b"x", "f": b"now a file", "new/empty": FOLDER, "\nodd\udcff": b"o"})
    outcome = workspace.apply()

    assert (outcome.unapplied, outcome.conflicts, outcome.withheld) == ((), {}, {})
    assert gist(workspace.host) == gist(copy)
    assert workspace.changes() == ()
    assert reopen(tmp_path / "state").changes() == ()


def test_only_what_was_chosen_reaches_the_folder(tmp_path: Path) -> None:
    """A file by its name, or a folder for all below it; the rest stays to be applied later."""
    workspace = changed(tmp_path, {"a": b"1", "d/b": b"1"}, {"a": b"2", "d/b": b"2", "d/c": b"2", "dd": b"2"})
    outcome = workspace.apply(["d/"])

    assert outcome == ApplyOutcome(applied=("d/b", "d/c"), unapplied=("a", "dd"))
    assert gist(workspace.host) == {"a": b"1", "d": None, "d/b": b"2", "d/c": b"2"}
    assert kinds(reopen(tmp_path / "state").changes()) == {"a": "modified", "dd": "added"}


def test_nothing_chosen_changes_nothing(tmp_path: Path) -> None:
    """The folder is the same to the byte, its times too."""
    workspace = changed(tmp_path, {"a": b"1"}, {"a": b"2", "b": b"2"})
    before = picture(workspace.host)

    assert workspace.apply([]) == ApplyOutcome(unapplied=("a", "b"))
    assert picture(workspace.host) == before


def test_a_path_that_is_no_change_is_an_error(tmp_path: Path) -> None:
    """A typing mistake is not taken for "nothing to do"."""
    with pytest.raises(WorkspaceError, match="not among the changes: b"):
        changed(tmp_path, {}, {"a": b"1"}).apply(["a", "b"])


def test_applying_again_is_harmless(tmp_path: Path) -> None:
    """What is there already is recognised, so that an interrupted run can simply be repeated."""
    workspace = changed(tmp_path, {"f": b"1", "g": b"1"}, {"f": b"2", "n/m": b"2"})
    (workspace.source / "g").unlink()
    workspace.changes()
    first = workspace.apply()
    after = picture(workspace.host)

    assert workspace.apply() == first
    assert picture(workspace.host) == after


def test_an_interrupted_run_is_completed(tmp_path: Path) -> None:
    """Stopped between two files, with a half-written one beside its destination: the next run ends with the copy."""
    workspace = changed(tmp_path, {"a": b"1", "b": b"1", "t": b"1"}, {"a": b"2", "b": b"2"})
    (workspace.source / "t").unlink()
    grow(workspace.source, {"t/f": b"2"})
    prefix = workspace._record.temporary_prefix
    grow(workspace.host, {"a": b"2", f"{prefix}0123": b"half"})
    (workspace.host / "t").unlink()  # the first of the two steps of a type change
    again = reopen(tmp_path / "state")
    outcome = again.apply()

    assert outcome.conflicts == {}
    assert gist(workspace.host) == gist(workspace.source)


def test_a_replaced_file_keeps_what_its_owner_attached(tmp_path: Path) -> None:
    """Extended attributes and the access list of the person's file, with the new content and executable bit."""
    workspace = started(tmp_path, {"f": b"1"})
    rows = ((1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 6, -1), (32, 0, -1))
    rights = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    os.setxattr(workspace.host / "f", "user.note", b"mine")
    os.setxattr(workspace.host / "f", "system.posix_acl_access", rights)
    before = (workspace.host / "f").stat().st_mode
    grow(workspace.source, {"f": b"2"})
    workspace.changes()

    assert workspace.apply().applied == ("f",)
    assert (workspace.host / "f").read_bytes() == b"2"
    assert os.getxattr(workspace.host / "f", "user.note") == b"mine"
    assert os.getxattr(workspace.host / "f", "system.posix_acl_access") == rights
    assert (workspace.host / "f").stat().st_mode == before


def test_git_folders_never_go(tmp_path: Path) -> None:
    """Hooks and configuration made inside do not reach the folder, nor does a whole repository (case dev-43)."""
    workspace = changed(tmp_path, {".git/config": b"[core]\n"}, {
        ".git/config": b"[core]\nfsmonitor=/tmp/evil\n",
        ".git/hooks/post-checkout": Program(b"touch /tmp/hooked_d43"),
        "sub/.git/config": b"",
        "sub/f": b"",
    })  # fmt: skip
    workspace.apply()

    assert gist(workspace.host) == {".git": None, ".git/config": b"[core]\n", "sub": None, "sub/f": b""}
    with pytest.raises(WorkspaceError, match="not among"):
        workspace.apply([".git/config"])


def test_a_link_to_the_host_is_never_written_through(tmp_path: Path) -> None:
    """Case dev-26, host side: what tools did to links of the workspace leaves their targets outside alone."""
    victim = tmp_path / "victim.txt"
    victim.write_text("original")
    workspace = started(tmp_path, {"notes.md": Link(str(victim)), "draft.txt": Link(str(tmp_path / "not_yet.txt"))})
    for name in ("notes.md", "draft.txt"):
        (workspace.source / name).unlink()
    grow(workspace.source, {"notes.md": b"OWNED", "draft.txt": b"X"})

    assert kinds(workspace.changes()) == {"draft.txt": "type", "notes.md": "type"}
    assert workspace.apply().conflicts == {}
    assert victim.read_text() == "original"
    assert not (tmp_path / "not_yet.txt").exists()
    assert gist(workspace.host) == {"notes.md": b"OWNED", "draft.txt": b"X"}


def test_modes_are_plain_for_new_files_and_kept_for_old_ones(tmp_path: Path) -> None:
    """0644 or 0755 when new, never set-id; an old file keeps its mode but for a changed executable bit."""
    before = {name: b"1" for name in ("private", "shared", "tool", "was")}
    host = grow(tmp_path / "host", before)
    for name, mode in {"private": 0o600, "shared": 0o664, "tool": 0o640, "was": 0o4755}.items():
        (host / name).chmod(mode)
    workspace = started(tmp_path, {})
    for name in before:
        (workspace.source / name).write_bytes(b"2")
    grow(workspace.source, {"new": b"", "run": Program(b"")})
    for name, mode in {"new": 0o4666, "run": 0o6711, "tool": 0o740, "was": 0o600}.items():
        (workspace.source / name).chmod(mode)
    assert workspace.apply().conflicts == {}

    assert {path.name: oct(path.stat().st_mode & 0o7777) for path in host.iterdir()} == {
        "private": "0o600",
        "shared": "0o664",
        "tool": "0o750",
        "was": "0o644",
        "new": "0o644",
        "run": "0o755",
    }


def test_a_new_executable_bit_alone_goes_in_place(tmp_path: Path) -> None:
    """The file stays the same one; its bits follow who may read it."""
    workspace = started(tmp_path, {"f": b"1"})
    (workspace.host / "f").chmod(0o640)
    (workspace.source / "f").chmod(0o777)
    inode = (workspace.host / "f").stat().st_ino

    assert kinds(workspace.changes()) == {"f": "mode"}
    assert workspace.apply().applied == ("f",)
    assert (oct((workspace.host / "f").stat().st_mode & 0o777), (workspace.host / "f").stat().st_ino) == (
        "0o750",
        inode,
    )


@pytest.mark.parametrize("owner", [0, 1234])
def test_the_folder_keeps_its_owner(tmp_path: Path, owner: int) -> None:
    """Nothing that comes back belongs to the tools' id or to root where it did not before."""
    host = grow(tmp_path / "host", {"f": b"1", "theirs": b"1"})
    expected = owner if AS_ROOT else os.geteuid()
    if AS_ROOT:
        for path in (host, host / "f"):
            os.chown(path, owner, owner)
        os.chown(host / "theirs", 4321, 4321)
    workspace = started(tmp_path, {})
    grow(workspace.source, {"f": b"2", "theirs": b"2", "new/deep/g": b"2", "l": Link("f")})
    assert workspace.apply([*kinds(workspace.changes())]).conflicts == {}

    owners = {str(path.relative_to(host)): path.lstat().st_uid for path in host.rglob("*")}
    assert owners.pop("theirs") == (4321 if AS_ROOT else expected)
    assert set(owners.values()) == {expected}


def test_large_sparse_files_come_back_sparse(tmp_path: Path) -> None:
    """2 GiB of holes made inside do not become 2 GiB on the person's disk."""
    workspace = started(tmp_path, {})
    with open(workspace.source / "s", "wb") as file:
        file.write(b"head")
        file.truncate(2 * 1024**3)
    assert workspace.apply().applied == ("s",)

    info = (workspace.host / "s").stat()
    assert (info.st_size, info.st_blocks * 512 < 1024**2) == (2 * 1024**3, True)


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    """The kept changes of a folder that was removed cannot go anywhere."""
    workspace = changed(tmp_path, {}, {"f": b""})
    workspace.host.rmdir()

    with pytest.raises(WorkspaceError, match=r"cannot be opened: No such file or directory$"):
        workspace.apply()
