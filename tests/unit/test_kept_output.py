"""What is put behind the bounded part of an output that was written as it came."""

from __future__ import annotations

import pytest

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
