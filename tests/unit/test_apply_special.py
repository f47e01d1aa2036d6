"""Special files on their way to the folder: links and FIFOs by their own name only, devices as root, sockets never."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, changed, gist, grow, picture, started

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.putspecial import UnmakeableError, devices_of, make_special, withheld
from sandbox_agent.workspaces.tree import Tree


def test_links_go_only_when_named(tmp_path: Path) -> None:
    """All, or their folder, leaves them out and says so; their own path brings exactly the link."""
    workspace = changed(tmp_path, {"f": b"1"}, {"d/out": Link("/etc/passwd"), "d/x": b"2"})

    assert workspace.apply().applied == ("d/x",)
    outcome = workspace.apply(["d"])
    assert outcome.unapplied == ("d/out",)
    assert outcome.withheld == {"d/out": "a link to /etc/passwd: goes only when its own path is named"}
    assert workspace.apply(["d/out"]).applied == ("d/out",)
    assert os.readlink(workspace.host / "d/out") == "/etc/passwd"


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
