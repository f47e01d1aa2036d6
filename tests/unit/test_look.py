"""Giving out the files of a tree: what is too large is refused before any of it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.below import Below
from sandbox_agent.workspaces.inside.look import Look

LIMIT_BYTES = 4 * wire.CHUNK


class Kept(wire.Out):
    """Keeps the frames instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[bytes] = []

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.kinds.append(kind)


def given(folder: Path, name: str) -> list[bytes]:
    out = Kept()
    Look(Below(str(folder)), out).give(name.encode(), LIMIT_BYTES)
    return out.kinds


@pytest.mark.parametrize(("over_bytes", "data_frames", "last"), [(0, 4, wire.STATE_AFTER), (1, 0, wire.FAULT)])
def test_a_file_over_the_limit_is_not_read(tmp_path: Path, over_bytes: int, data_frames: int, last: bytes) -> None:
    """One that just fits is given out whole."""
    (tmp_path / "f").write_bytes(b"x" * (LIMIT_BYTES + over_bytes))
    kinds = given(tmp_path, "f")

    assert (kinds.count(wire.DATA), kinds[-1]) == (data_frames, last)


def test_holes_do_not_count(tmp_path: Path) -> None:
    """A file of a hundred times the limit with little in it is given out."""
    with (tmp_path / "f").open("wb") as file:
        file.truncate(100 * LIMIT_BYTES)
        file.seek(50 * LIMIT_BYTES)
        file.write(b"x")
    kinds = given(tmp_path, "f")

    assert (kinds.count(wire.DATA), kinds[-1]) == (1, wire.STATE_AFTER)
