"""The copy a session works on: whole, owned by the tools, free of masked files, and apart from the folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, gist, grow, kinds, picture, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Owner
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.opening import create, reopen
from sandbox_agent.workspaces.record import MANIFEST_NAME

SHAPE = {
    "README.md": b"hello\n",
    "bin/run": Program(b"#!/bin/sh\n"),
    "empty": FOLDER,
    "link": Link("README.md"),
    "dangling": Link("/nowhere/at all"),
    "new\nline/-rf": b"x",
    "\udcff": b"bytes",
    ".git/HEAD": b"ref: refs/heads/main\n",
    "zero": b"",
}


def test_the_copy_is_the_folder(tmp_path: Path) -> None:
    """Content, links, modes, times and odd names are the same, the folder is untouched, nothing has changed yet."""
    before = picture(grow(tmp_path / "host", SHAPE))
    workspace = started(tmp_path, {})

    assert gist(workspace.source) == gist(workspace.host)
    assert {p: s[2] for p, s in picture(workspace.source).items()} == {p: s[2] for p, s in before.items()}  # type: ignore[index]
    assert picture(workspace.host) == before
    assert workspace.changes() == ()


def test_what_is_above_the_copy_is_closed_to_others(tmp_path: Path) -> None:
    """The session's folder is 0700, its lists 0600."""
    started(tmp_path, {"f": b""})

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "state").iterdir() if path.is_file()}
    assert oct((tmp_path / "state").stat().st_mode & 0o777) == "0o700"
    assert modes == {"manifest.jsonl": "0o600", "refs.json": "0o600", "workspace.json": "0o600"}


@pytest.mark.parametrize("folder_owner", [0, 1234])
def test_tools_never_run_as_root_and_own_the_copy(tmp_path: Path, folder_owner: int) -> None:
    """Root's folder gets an id of its own, another user's folder that user; an ordinary user stays who they are."""
    host = grow(tmp_path / "host", {"d/f": b"x", "l": Link("d")})
    if os.geteuid() == 0:
        for path in (host, *host.rglob("*")):
            os.lchown(path, folder_owner, folder_owner)
        expected = Owner(65532, 65532) if folder_owner == 0 else Owner(1234, 1234)
    else:
        expected = Owner(os.geteuid(), os.getegid())
    workspace = started(tmp_path, {})

    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in (workspace.source, *workspace.source.rglob("*"))}
    assert workspace.owner == expected
    assert owners == {(expected.uid, expected.gid)}


def test_group_0_is_not_given_to_tools(tmp_path: Path) -> None:
    """A folder of group root gets tools whose group is their own."""
    host = grow(tmp_path / "host", {})
    if os.geteuid() == 0:
        os.chown(host, 1234, 0)

    owner = create("copy", host, tmp_path / "state").owner

    assert owner.gid != 0
    assert owner == (Owner(1234, 1234) if os.geteuid() == 0 else Owner(os.geteuid(), os.getegid()))


def test_set_id_bits_stay_behind(tmp_path: Path) -> None:
    """A set-uid program is copied as an ordinary one."""
    host = grow(tmp_path / "host", {"su": Program(b"x")})
    (host / "su").chmod(0o6755)

    assert oct((started(tmp_path, {}).source / "su").stat().st_mode & 0o7777) == "0o755"


def test_masked_paths_are_left_out_and_never_reported(tmp_path: Path) -> None:
    """Patterns hide files and whole folders; the session knows by which rule, and no deletion is told."""
    shape = {".env": b"K=1", "a/.env": b"K=2", "keys/id": b"k", "keys/pub/x": b"k", "a/ok.pem": b"p", "a/b.pem": b"p"}
    workspace = started(tmp_path, shape, masks=[".env", "keys/", "*.pem", "!ok.pem"])

    assert gist(workspace.source) == {"a": None, "a/ok.pem": b"p"}
    assert workspace.masked == {".env": ".env", "a/.env": ".env", "keys": "keys/", "a/b.pem": "*.pem"}
    assert workspace.changes() == ()
    assert [note for note in workspace.notes if "keys" in note] == ["masked by keys/: keys"]
    assert reopened_masks(tmp_path) == workspace.masked


def reopened_masks(tmp_path: Path) -> object:
    workspace = reopen(tmp_path / "state")
    workspace.prepare()
    return workspace.masked


def test_a_masked_path_is_never_written_from_the_copy(tmp_path: Path) -> None:
    """What a tool makes where something was hidden is a conflict, below a hidden folder too."""
    workspace = started(tmp_path, {".env": b"K=1", "keys/id": b"k"}, masks=[".env", "keys"])
    before = picture(workspace.host)
    grow(workspace.source, {".env": b"mine", "keys/new": b"mine"})

    assert kinds(workspace.changes()) == {".env": "added", "keys/new": "added"}
    assert sorted(workspace.apply().conflicts) == [".env", "keys/new"]
    assert picture(workspace.host) == before


def test_a_bad_mask_is_an_error(tmp_path: Path) -> None:
    """A pattern that cannot be read must not show the secret it was meant to hide."""
    with pytest.raises(WorkspaceError, match="mask"):
        create("copy", grow(tmp_path / "host", {}), tmp_path / "state", masks=["!"])


def test_special_files_are_skipped_with_a_note(tmp_path: Path) -> None:
    """A FIFO is not copied, not waited for and not reported as deleted."""
    os.mkfifo(grow(tmp_path / "host", {"f": b""}) / "pipe")
    workspace = started(tmp_path, {})

    assert os.listdir(workspace.source) == ["f"]
    assert workspace.notes == ("not copied: a FIFO: pipe",)
    assert workspace.changes() == ()


def test_an_unreadable_file_is_a_note(tmp_path: Path) -> None:
    """Files and folders the person cannot read are told and left out; root reads them all."""
    host = grow(tmp_path / "host", {"shut": b"s", "closed/f": b"s", "open": b"o"})
    (host / "shut").chmod(0)
    (host / "closed").chmod(0)
    workspace = started(tmp_path, {})

    readable = {"shut", "closed", "closed/f", "open"} if os.geteuid() == 0 else {"open", "closed"}
    assert set(gist(workspace.source)) == readable
    assert any("shut" in note for note in workspace.notes) == (os.geteuid() != 0)
    assert workspace.changes() == ()
    (host / "closed").chmod(0o755)


def test_a_read_only_folder_is_copied(tmp_path: Path) -> None:
    """Modes are set when a folder has been filled, so that one without write permission can be."""
    host = grow(tmp_path / "host", {"ro/sub/f": b"x"})
    (host / "ro/sub").chmod(0o555)
    (host / "ro").chmod(0o555)
    workspace = started(tmp_path, {})

    assert (workspace.source / "ro/sub/f").read_bytes() == b"x"
    assert oct((workspace.source / "ro").stat().st_mode & 0o777) == "0o555"


def test_hard_links_become_separate_files(tmp_path: Path) -> None:
    """A write to one name inside does not show under the other."""
    host = grow(tmp_path / "host", {"a": b"x"})
    os.link(host / "a", host / "b")
    workspace = started(tmp_path, {})

    assert [(workspace.source / name).stat().st_nlink for name in "ab"] == [1, 1]


def test_holes_stay_holes(tmp_path: Path) -> None:
    """A sparse file of 3 GiB with 10 bytes takes no space in the copy, and its digest no reading of holes."""
    host = grow(tmp_path / "host", {})
    with open(host / "sparse", "wb") as file:
        file.seek(2 * 1024**3)
        file.write(b"0123456789")
        file.truncate(3 * 1024**3)
    workspace = started(tmp_path, {})
    copied = (workspace.source / "sparse").stat()

    assert copied.st_size == 3 * 1024**3
    assert copied.st_blocks * 512 < 1024**2
    with open(workspace.source / "sparse", "rb") as file:
        file.seek(2 * 1024**3)
        assert file.read(11) == b"0123456789\0"


def test_a_session_folder_takes_one_workspace(tmp_path: Path) -> None:
    """A second one does not mix with the first."""
    host = started(tmp_path, {"f": b""}).host

    with pytest.raises(WorkspaceError, match="already holds"):
        create("copy", host, tmp_path / "state")


def test_another_process_takes_up_the_copy(tmp_path: Path) -> None:
    """Reopened, it shows the same changes; preparing it again does not touch them."""
    workspace = started(tmp_path, {"f": b"1", "g": b"2"})
    grow(workspace.source, {"f": b"changed"})
    again = reopen(tmp_path / "state")
    again.prepare()

    assert kinds(again.changes()) == {"f": "modified"}
    assert (again.host, again.owner, again.mode) == (workspace.host, workspace.owner, "copy")


def test_an_unfinished_copy_begins_anew(tmp_path: Path) -> None:
    """Killed while copying, the session has a copy nobody can believe; preparing it again makes a whole one."""
    workspace = started(tmp_path, {"f": b"1", "d/g": b"2"})
    (tmp_path / "state" / MANIFEST_NAME).unlink()
    grow(workspace.source, {"f": b"half"})
    again = reopen(tmp_path / "state")

    with pytest.raises(WorkspaceError, match="no usable list"):
        again.changes()
    again.prepare()
    assert gist(again.source) == {"f": b"1", "d": None, "d/g": b"2"}
    assert again.changes() == ()


def test_a_cut_list_is_not_believed(tmp_path: Path) -> None:
    """A list of files that lost its end would report the rest as added."""
    started(tmp_path, {"f": b"1", "g": b"2"})
    path = tmp_path / "state" / MANIFEST_NAME
    path.write_text("\n".join(path.read_text().splitlines()[:-2]) + "\n")

    with pytest.raises(WorkspaceError, match="no usable list"):
        Manifest.load(path)


def test_discard_leaves_nothing_of_the_copy(tmp_path: Path) -> None:
    """All is gone but what others put into the session's folder; the person's folder is as it was."""
    workspace = started(tmp_path, SHAPE)
    before = picture(workspace.host)
    grow(workspace.source, {"more/f": b"", "out": Link(str(workspace.host))})
    (tmp_path / "state/events.jsonl").write_text("{}")

    workspace.discard()
    workspace.discard()

    assert os.listdir(tmp_path / "state") == ["events.jsonl"]
    assert picture(workspace.host) == before
    with pytest.raises(WorkspaceError, match="keeps no workspace"):
        reopen(tmp_path / "state")


def test_progress_is_told_and_may_stop_it(tmp_path: Path) -> None:
    """The count rises; an exception from the callback ends the copying and leaves no finished list."""
    workspace = create("copy", grow(tmp_path / "host", {f"f{n}": b"" for n in range(250)}), tmp_path / "state")
    counts: list[int] = []

    def stop(count: int) -> None:
        counts.append(count)
        if count >= 200:
            raise InterruptedError(errno.EINTR, "enough")

    with pytest.raises(WorkspaceError):
        workspace.prepare(stop)
    assert counts == [100, 200]
    assert not (tmp_path / "state" / MANIFEST_NAME).exists()
