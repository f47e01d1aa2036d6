"""A fork before it went on: it has a conversation and a tree to begin with, and no steps of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from frontend_events import STARTED

from sandbox_agent.engine.forking import FORK_FILE, session_folder
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.tape import TapeWriter

ID = "20260101000000abcdef01"


def test_its_steps_are_not_said_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`undo` and `fork` of it say what it is and how to go on, not that all was applied."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "sandbox-agent/sessions" / ID
    folder.mkdir(parents=True)
    tape = TapeWriter(folder / "events.jsonl")
    tape.append(STARTED)
    tape.close()
    origin = {"mode": "copy", "host": "/home/me/p", "masks": [], "in_volume": False}
    (folder / FORK_FILE).write_text(json.dumps(origin))

    with pytest.raises(WorkspaceError, match=f"is a fork that did not go on yet.*run --resume {ID} TASK"):
        session_folder(ID)
