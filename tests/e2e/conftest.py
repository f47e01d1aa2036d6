"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Program

KNOWN = "state/sandbox-agent/engines.json"


@pytest.fixture(scope="session")
def known_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what the first run found out about the engine is kept for the others: finding out takes a second."""
    return tmp_path_factory.mktemp("known") / "engines.json"


@pytest.fixture
def program(tmp_path: Path, known_engine: Path) -> Iterator[Program]:
    """The command line with a fresh state folder and project."""
    made = Program.make(tmp_path)
    known = made.home / KNOWN
    if known_engine.exists():
        known.parent.mkdir(parents=True)
        known.parent.chmod(0o700)
        shutil.copy(known_engine, known)
    yield made
    if known.exists():
        shutil.copy(known, known_engine)
