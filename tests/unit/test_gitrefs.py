"""Where repositories pointed at the start, read as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_trees import Link, grow, started

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.gitrefs import changed_refs, noted_refs

A, B, C = "a" * 40, "b" * 40, "c" * 64


def test_loose_and_packed_refs_and_head_are_noted(tmp_path: Path) -> None:
    """A loose ref wins over a packed one; nested repositories, submodules and a detached HEAD count."""
    started(
        tmp_path,
        {
            ".git/objects/x": b"",
            ".git/HEAD": b"ref: refs/heads/main\n",
            ".git/packed-refs": f"# pack-refs with: peeled\n{A} refs/heads/main\n{A} refs/tags/v1\n^{B}\n".encode(),
            ".git/refs/heads/main": f"{B}\n".encode(),
            ".git/refs/heads/side/x": f"{C}\n".encode(),
            ".git/refs/heads/rubbish": b"../../etc/passwd\n",
            ".git/refs/remotes/origin/HEAD": b"ref: refs/remotes/origin/main\n",
            ".git/modules/sub/objects/x": b"",
            ".git/modules/sub/HEAD": f"{A}\n".encode(),
            "lib/.git/objects/x": b"",
            "lib/.git/HEAD": b"ref: refs/heads/none\n",
            "objects/x": b"",
        },
    )

    assert noted_refs(tmp_path / "state") == {
        ".git": {"HEAD": B, "refs/heads/main": B, "refs/heads/side/x": C, "refs/tags/v1": A},
        ".git/modules/sub": {"HEAD": A},
        "lib/.git": {},
    }


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A ref that is a link points nowhere."""
    grow(tmp_path, {"secret": A.encode()})
    host = {".git/objects/x": b"", ".git/HEAD": b"ref: refs/heads/l\n", ".git/refs/heads/l": Link("../../../../secret")}
    started(tmp_path, host)

    assert noted_refs(tmp_path / "state") == {".git": {}}


def test_new_and_moved_refs_are_changed_ones() -> None:
    """Refs that are gone are not."""
    assert changed_refs({"a": A, "b": B, "gone": A}, {"a": A, "b": A, "new": B}) == {"b": A, "new": B}


def test_a_damaged_note_is_one_line(tmp_path: Path) -> None:
    """A session without one has no refs."""
    assert noted_refs(tmp_path) == {}
    (tmp_path / "refs.json").write_text("[]")
    with pytest.raises(WorkspaceError, match=r"refs\.json: cannot be used"):
        noted_refs(tmp_path)
