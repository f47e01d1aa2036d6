"""`sessions list`: what tells one session from another."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from frontend_events import STARTED

from sandbox_agent.cli import main
from sandbox_agent.tape import TapeWriter

PARENT, FORK = "20260101000000abcdef01", "20260101000001abcdef02"


def listed(*options: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        main(["sessions", "list", *options])
    return out.getvalue()


def test_a_fork_says_what_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it was gone on with; its parent says nothing of the sort."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    forked = replace(STARTED, forked_from=PARENT, forked_step=3)
    for session_id, events in {PARENT: [STARTED], FORK: [forked, replace(STARTED, resumed_from=FORK)]}.items():
        folder = tmp_path / "sandbox-agent/sessions" / session_id
        folder.mkdir(parents=True)
        tape = TapeWriter(folder / "events.jsonl")
        for event in events:
            tape.append(event)
        tape.close()

    assert listed().splitlines()[1] == f"    fork of {PARENT} at step 3"
    assert listed().count("fork of") == 1
    rows = {row["session_id"]: row for row in map(json.loads, listed("--json").splitlines())}
    assert (rows[FORK]["forked_from"], rows[FORK]["forked_step"]) == (PARENT, 3)
    assert rows[PARENT]["forked_from"] is None


@pytest.mark.parametrize("command", ["list", "show", "rm", "audit"])
def test_the_help_of_each_command_has_examples(command: str) -> None:
    """Under its options, as every other command's."""
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        main(["sessions", command, "--help"])
    assert f"Examples:\n    sandbox-agent sessions {command}" in out.getvalue()
