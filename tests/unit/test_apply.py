"""Bringing changes to the folder: only what was chosen, only over what is still there, never through a link."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, gist, grow, kinds, picture, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ApplyOutcome, Kind
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.entries import examine
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.put import Conflict, Putter
from sandbox_agent.workspaces.putspecial import UnmakeableError, devices_of, make_special, withheld
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.source import TreeSource
from sandbox_agent.workspaces.tree import Tree

AS_ROOT = os.geteuid() == 0


def changed(tmp_path: Path, before: dict[str, object], after: dict[str, object]) -> CopyWorkspace:
    """A copy with `after` written over `before`, and reviewed."""
    workspace = started(tmp_path, before)  # type: ignore[arg-type]
    grow(workspace.source, after)  # type: ignore[arg-type]
    workspace.changes()
    return workspace


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


def test_links_go_only_when_named(tmp_path: Path) -> None:
    """All, or their folder, leaves them out and says so; their own path brings exactly the link."""
    workspace = changed(tmp_path, {"f": b"1"}, {"d/out": Link("/etc/passwd"), "d/x": b"2"})

    assert workspace.apply().applied == ("d/x",)
    outcome = workspace.apply(["d"])
    assert outcome.unapplied == ("d/out",)
    assert outcome.withheld == {"d/out": "a link to /etc/passwd: goes only when its own path is named"}
    assert workspace.apply(["d/out"]).applied == ("d/out",)
    assert os.readlink(workspace.host / "d/out") == "/etc/passwd"


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


def test_fifos_go_only_when_named(tmp_path: Path) -> None:
    """All, a folder and another's name leave it; its own path makes one of mode 0644, in the place of a file, too."""
    workspace = started(tmp_path, {"f": b"1"})
    (workspace.source / "d").mkdir()
    for name in ("d/pipe", "f"):
        (workspace.source / name).unlink(missing_ok=True)
        os.mkfifo(workspace.source / name, 0o777)

    assert workspace.apply().withheld == dict.fromkeys(("d/pipe", "f"), "a FIFO: goes only when its own path is named")
    assert list(workspace.apply(["d"]).withheld) == ["d/pipe"]
    assert workspace.apply(["d/pipe", "f"]).applied == ("d/pipe", "f")
    modes = [os.lstat(workspace.host / name).st_mode for name in ("d/pipe", "f")]
    assert modes == [stat.S_IFIFO | 0o644] * 2
    assert workspace.changes() == ()


@pytest.mark.parametrize("there", [b"file", FOLDER, Link("x")])
def test_a_fifo_replaces_nothing_that_appeared(tmp_path: Path, there: object) -> None:
    """What the person made there meanwhile is a conflict, and stays; a FIFO of theirs is the same as ours."""
    workspace = started(tmp_path, {})
    os.mkfifo(workspace.source / "p")
    workspace.changes()
    grow(workspace.host, {"p": there})  # type: ignore[dict-item]
    before = picture(workspace.host)

    assert workspace.apply(["p"]).conflicts["p"].startswith("appeared here meanwhile, as a ")
    assert picture(workspace.host) == before


def test_a_fifo_gives_way_to_what_the_session_made_of_it(tmp_path: Path) -> None:
    """A file in its place, or nothing; one that the person made something else of stays."""
    workspace = started(tmp_path, {})
    for name in ("a", "b", "c"):
        os.mkfifo(workspace.source / name)
    workspace.apply(["a", "b", "c"])
    for name in ("a", "b", "c"):
        (workspace.source / name).unlink()
    grow(workspace.source, {"a": b"1"})
    (workspace.host / "c").unlink()
    grow(workspace.host, {"c": b"mine"})
    workspace.changes()

    outcome = workspace.apply()
    assert (outcome.applied, outcome.conflicts) == (("a", "b"), {"c": "became a file here meanwhile"})
    assert gist(workspace.host) == {"a": b"1", "c": b"mine"}


def test_sockets_never_go(tmp_path: Path) -> None:
    """Whatever is named: one line says why."""
    workspace = started(tmp_path, {})
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(workspace.source / "s"))
        outcome = workspace.apply(["s"])

    assert outcome.unapplied == ("s",)
    assert outcome.withheld == {"s": "a socket is never copied out: it means nothing without the program that made it"}
    assert os.listdir(workspace.host) == []


def test_a_device_goes_by_name_as_root_and_only_if_the_folder_had_it(tmp_path: Path) -> None:
    """Inside none can be made, so one that the folder never held is a lie; it never runs with more than plain modes."""
    manifest = Manifest({"null": Entry(Kind.OTHER, mode=0o666, target="c 1:3"), "f": Entry(Kind.FILE)})
    moved, other = Entry(Kind.OTHER, target="c 1:3"), Entry(Kind.OTHER, target="b 8:0")
    devices = devices_of(manifest)
    with Tree(grow(tmp_path / "host", {})) as tree, tree.at("x") as place:
        with pytest.raises(UnmakeableError, match="did not hold"):
            make_special("b 8:0", place, devices)
        assert place.stat() is None
        if os.geteuid() == 0:
            assert withheld(moved, named=False) == "a device: goes only when its own path is named"
            assert withheld(moved, named=True) is withheld(other, named=True) is None
            make_special("c 1:3", place, devices)
            info = os.lstat(tmp_path / "host/x")
            assert (info.st_mode, info.st_rdev) == (stat.S_IFCHR | 0o644, os.makedev(1, 3))
        else:
            assert withheld(moved, named=True) == "a device: only root can make one; apply it as root, by its own path"
            with pytest.raises(PermissionError):
                make_special("c 1:3", place, devices)


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

    with pytest.raises(WorkspaceError, match="cannot be opened"):
        workspace.apply()
