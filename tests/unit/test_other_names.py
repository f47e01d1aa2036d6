"""A file that lost its other names by being copied up gets them again."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox_agent.sandboxes.runner import names


def copied_up(path: Path, content: str) -> os.stat_result:
    """What an overlay does to a file of its lower layer that is written to; the file as it was before."""
    before = os.lstat(path)
    fresh = path.with_name("fresh")
    fresh.write_text(content)
    fresh.rename(path)
    return before


def test_all_names_in_the_tree_show_the_new_content(tmp_path: Path) -> None:
    """In other folders too; other files stay."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "a").write_text("old")
    (tmp_path / "other").write_text("old")
    for name in ("b", "d/c", "d/e/f"):
        os.link(tmp_path / "a", tmp_path / name)
    names.rejoin(os.fsencode(tmp_path / "a"), copied_up(tmp_path / "a", "new"))

    assert [(tmp_path / name).read_text() for name in ("a", "b", "d/c", "d/e/f", "other")] == ["new"] * 4 + ["old"]
    assert os.lstat(tmp_path / "a").st_nlink == 4
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["a", "b", "c", "d", "e", "f", "other"]


def test_a_file_that_kept_its_names_is_left_alone(tmp_path: Path) -> None:
    """Nothing is looked for, and nothing changes."""
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "b")
    before = os.lstat(tmp_path / "a")
    names.rejoin(os.fsencode(tmp_path / "a"), before)

    assert os.lstat(tmp_path / "b") == os.lstat(tmp_path / "a") == before


def test_a_name_that_leads_elsewhere_meanwhile_is_left(tmp_path: Path) -> None:
    """What a command put in the place of the other name stays."""
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "b")
    before = copied_up(tmp_path / "a", "new")
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to("/etc/passwd")
    names.rejoin(os.fsencode(tmp_path / "a"), before)

    assert (tmp_path / "b").readlink() == Path("/etc/passwd")
    assert os.lstat(tmp_path / "a").st_nlink == 1
