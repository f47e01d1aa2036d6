"""The tree of a bundle as a folder: all of it as it was, and nothing anywhere else."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.engine.laying_out import FOR_PEOPLE, after, lay_out
from sandbox_agent.errors import ReplayMismatchError

DATA = b"one\n"
SHA256 = hashlib.sha256(DATA).hexdigest()
BLOBS = {SHA256: DATA}
TIME_NS = 1_700_000_000 * 10**9


def entry(path: str, kind: str = "file", mode: int = 0o644, **more: Any) -> dict[str, Any]:
    if kind == "file":
        more = {"sha256": SHA256, **more}
    return {"path": path, "kind": kind, "mode": mode, "mtime_ns": TIME_NS, **more}


ROOT = entry("", "directory", 0o755)
KINDS = [
    ROOT,
    entry("a"),
    entry("a.b", mode=0o4755),
    entry("again", group="a"),
    entry("d", "directory", 0o555),
    entry("d/in", mode=0o400),
    entry("d.x", "directory", 0o1777),
    entry("empty", sha256=None),
    entry("link", "link", 0o777, target="/etc/passwd"),
    entry("odd\udcff\n"),
    entry("pipe", "other", target="p"),
    entry("socket", "other", target="s"),
]


def test_every_kind_of_entry_is_as_it_was(tmp_path: Path) -> None:
    """Contents, modes, times, hard links, targets and odd names; a folder that cannot be written to has its files."""
    lay_out(KINDS, BLOBS, tmp_path)

    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).lstat().st_mode)

    assert sorted(os.listdir(tmp_path)) == sorted(
        ["a", "a.b", "again", "d", "d.x", "empty", "link", "odd\udcff\n", "pipe", "socket"]
    )
    assert [(tmp_path / name).read_bytes() for name in ("a", "d/in", "odd\udcff\n", "empty")] == [DATA, DATA, DATA, b""]
    assert [mode(name) for name in ("a", "a.b", "d", "d/in", "d.x")] == [0o644, 0o4755, 0o555, 0o400, 0o1777]
    assert (tmp_path / "a").samefile(tmp_path / "again")
    assert os.readlink(tmp_path / "link") == "/etc/passwd"
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "socket").is_socket()
    assert {(tmp_path / name).lstat().st_mtime_ns for name in ("a", "d", "pipe")} == {TIME_NS}
    os.chmod(tmp_path / "d", 0o755)  # so that it can be removed


def test_in_a_folder_that_stays_nothing_runs_as_somebody_else(tmp_path: Path) -> None:
    """Set-id bits are left out, the others are there."""
    lay_out([ROOT, entry("a", mode=0o6755), entry("d", "directory", 0o3777)], BLOBS, tmp_path, bits=FOR_PEOPLE)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "d")] == [0o755, 0o1777]


@pytest.mark.parametrize(
    "hostile",
    [
        [entry("l", "link", target="OUT"), entry("l/planted")],
        [entry("l", "link", target="OUT"), entry("l", "directory")],
        [entry("l", "link", target="OUT"), entry("l/planted", "directory")],
        [entry("a"), entry("a/b")],
        [entry("d/planted")],
        [entry("../planted")],
        [entry("d", "directory"), entry("d/../../planted")],
        [entry("d", "directory"), entry("d//x")],
        [entry("d", "directory"), entry("d/")],
        [entry(".")],
        [entry("OUT/planted")],
        [entry("a\0b")],
        [entry("a"), entry("a")],
        [entry("", "link", target="OUT")],
        [entry("a", mode=-1)],
        [entry("a", mode="644")],
        [entry("a", mtime_ns=2**80)],
        [entry("a", sha256=1)],
        [entry("a", sha256="0" * 64)],
        [entry("a", "device", target="c 1:3")],
        [entry("a", "other", target="c 1:3")],
        [entry("a", "link", target="")],
        [entry("a", "link", target="x\0y")],
        [{**entry("a"), "path": 7}],
    ],
    ids=lambda hostile: f"{hostile[-1]['kind']} {hostile[-1]['path']!r}",
)
def test_a_tree_that_leads_out_of_the_folder_is_refused_before_anything_is_written(
    hostile: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Through a link, by its name, or by what it is."""
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    spelled = [
        {key: one.replace("OUT", str(out)) if isinstance(one, str) else one for key, one in each.items()}
        for each in hostile
    ]
    before = spelled if spelled[0]["path"] == "" else [ROOT, *spelled]

    with pytest.raises(ReplayMismatchError, match="step 0: the bundle"):
        lay_out(before, BLOBS, folder)
    assert (os.listdir(folder), os.listdir(out), sorted(os.listdir(tmp_path))) == ([], [], ["folder", "out"])


def test_a_hard_link_is_made_only_to_the_same_file(tmp_path: Path) -> None:
    """Of the tree, made before, with the same content and mode."""
    lay_out(
        [
            ROOT,
            entry("a", group="z"),
            entry("b", sha256=None, group="a"),
            entry("c", "link", target="a"),
            entry("d", group="c"),
            entry("e", group="none"),
            entry("f", group="f"),
            entry("g", group=["a"]),
            entry("z"),
        ],
        BLOBS,
        tmp_path,
    )
    assert {path.name: path.lstat().st_nlink for path in tmp_path.iterdir()} == dict.fromkeys("abcdefgz", 1)
    assert (tmp_path / "b").read_bytes() == b""


def test_the_tree_after_some_steps_has_what_each_changed() -> None:
    """Contents of the beginning where only the mode is another one; the rest by its line."""
    found = after(
        [ROOT, entry("a", group="a"), entry("gone"), entry("x", "link", target="a")],
        [
            {"a": "file 755 base", "gone": None, "new": f"file 600 {SHA256}", "l": "link 777 a b"},
            {"never": None, "new": None, "d": "directory 700", "p": "other 644 p", "x": "file 644 base"},
        ],
        5,
    )
    assert {one["path"]: {key: one[key] for key in one if key != "path"} for one in found} == {
        "": {"kind": "directory", "mode": 0o755, "mtime_ns": TIME_NS},
        "a": {"kind": "file", "mode": 0o755, "mtime_ns": TIME_NS, "sha256": SHA256, "group": "a"},
        "l": {"kind": "link", "mode": 0o777, "mtime_ns": 5, "target": "a b"},
        "d": {"kind": "directory", "mode": 0o700, "mtime_ns": 5},
        "p": {"kind": "other", "mode": 0o644, "mtime_ns": 5, "target": "p"},
        "x": {"kind": "file", "mode": 0o644, "mtime_ns": TIME_NS, "sha256": None, "group": None},
    }
