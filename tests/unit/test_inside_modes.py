"""Modes are brought back without a call that names a set-id bit: the sandbox refuses those."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.workspaces.inside.attributes import SET_ID, set_mode


@contextmanager
def chmods() -> Iterator[list[int]]:
    """The modes that are given to chmod meanwhile. An audit hook cannot be taken away: this one falls silent."""
    modes: list[int] = []
    listening = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.chmod" and listening:
            modes.append(arguments[1])

    sys.addaudithook(hook)
    yield modes
    listening = False


@pytest.mark.parametrize(
    ("now", "wanted"),
    [(0o2700, 0o2775), (0o2755, 0o2000), (0o755, 0o700), (0o2755, 0o755), (0o2755, 0o2755), (0o3777, 0o3700)],
)
def test_a_bit_that_is_there_stays_without_being_named(tmp_path: Path, now: int, wanted: int) -> None:
    """The rights change around it, and no list of rights is left."""
    folder = tmp_path / "d"
    folder.mkdir()
    folder.chmod(now)
    with chmods() as modes:
        set_mode(str(folder), wanted)

    assert stat.S_IMODE(folder.stat().st_mode) == wanted
    assert [mode for mode in modes if mode & SET_ID] == []
    assert os.listxattr(folder) == []
