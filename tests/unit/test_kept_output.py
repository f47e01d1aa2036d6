"""What is kept of an output: the file it goes to, and what is put behind its bounded part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.sandboxes.runner.capture import Capture
from sandbox_agent.sandboxes.runner.kept import KeptOutput, rest

DATA = b"0123456789"


@pytest.mark.parametrize(
    ("kept_bytes", "written_bytes", "wanted"),
    [
        (100, 10, b""),
        (100, 7, b"789"),
        (6, 7, b"789"),
        (6, 6, b"\n[... 1 bytes are left out here ...]\n789"),
        (0, 4, b"\n[... 6 bytes are left out here ...]\n"),
    ],
)
def test_the_end_joins_what_was_written(kept_bytes: int, written_bytes: int, wanted: bytes) -> None:
    """Exactly where the missing bytes are known, with a line that counts them where they are not."""
    kept = KeptOutput(kept_bytes)
    for at in range(len(DATA)):
        kept.add(DATA[at : at + 1])

    assert rest(kept, written_bytes) == wanted


def test_a_file_of_output_follows_no_link(tmp_path: Path) -> None:
    """A command that put a link in the place of its folder, or of the file, gets no byte written elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "room").symlink_to(elsewhere)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "out").symlink_to(elsewhere / "out")
    for place in (tmp_path / "room" / "out", tmp_path / "good" / "out"):
        capture = Capture(4, os.fsencode(place))
        capture.add(b"more than four bytes")
        capture.close()

        assert not capture.spilled
        assert capture.spill_bytes == 0
    assert list(elsewhere.iterdir()) == []


def test_a_file_of_output_has_all_of_it(tmp_path: Path) -> None:
    """In a folder that is made for it."""
    capture = Capture(4, os.fsencode(tmp_path / "room" / "out"))
    capture.add(b"more than ")
    capture.add(b"four bytes")
    capture.close()

    assert (tmp_path / "room" / "out").read_bytes() == b"more than four bytes"
    assert capture.spill_bytes == len(b"more than four bytes")
