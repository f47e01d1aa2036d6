"""`sessions export` and `resume`: what a person hands on, and how a session is gone on with."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path

import click
import pytest
from cli_calls import call
from frontend_events import STARTED, run_events

from sandbox_agent.cli.resume import COMMAND, _split
from sandbox_agent.events import ToolFinished
from sandbox_agent.tape import TapeWriter, read_tape

SESSION = "20260101000000abcdef01"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "sandbox-agent/sessions" / SESSION
    folder.mkdir(parents=True)
    tape = TapeWriter(folder / "events.jsonl")
    for event in run_events():
        if event.recorded:
            tape.append(event)
    hostile = "```\n# Not a title\n````\n\x1b[2J\u202eevil"
    tape.append(ToolFinished(call_id="x", tool="Bash", content=hostile, is_error=False, duration_s=0.1))
    tape.close()
    return folder / "events.jsonl"


def test_markdown_is_for_people(record: Path, tmp_path: Path) -> None:
    """Task, answers, calls, review with its diff; nothing of the content can end a block or do harm at a terminal."""
    ended = call("sessions", "export", "last", str(tmp_path / "s.md"))
    text = (tmp_path / "s.md").read_text()

    assert (ended.code, ended.out) == (0, "")
    assert text.startswith(f"# Session {SESSION}\n")
    for part in ("## What was said and done", "**task:**", "**agent:**", "## Review", "```diff\n--- a\n", "denied"):
        assert part in text
    assert "\n`````\n```\n# Not a title\n````\n" in text
    assert not re.search(r"[\x1b\u202e]", text)
    assert stat.S_IMODE((tmp_path / "s.md").stat().st_mode) == 0o600


def test_json_is_everything(record: Path, tmp_path: Path) -> None:
    """Every entry of the record, and what is worked out from them."""
    call("sessions", "export", SESSION, str(tmp_path / "s.json"))
    document = json.loads((tmp_path / "s.json").read_text())
    lines = [json.loads(line) for line in record.read_text().splitlines()]

    assert (document["format"], document["format_version"]) == ("sandbox-agent session", 1)
    assert document["record"]["entries"] == lines
    assert document["record"]["head"] == read_tape(record).head
    assert document["session"]["session_id"] == SESSION
    assert document["review"][0]["path"] in document["applied"]


def test_a_file_that_is_there_stays(record: Path, tmp_path: Path) -> None:
    """Unless it is to be replaced; a link in its place is never followed."""
    target = tmp_path / "other.md"
    target.write_text("mine")
    link = tmp_path / "link.md"
    link.symlink_to(target)
    refused = call("sessions", "export", "last", str(link))
    call("sessions", "export", "last", str(link), "--force")

    assert (refused.code, "is there already" in refused.err) == (2, True)
    assert target.read_text() == "mine"
    assert link.read_text().startswith("# Session")
    assert not link.is_symlink()
    assert list(tmp_path.glob(".*part")) == []
    assert call("sessions", "export", "last", str(tmp_path / "s.doc")).code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("last", None)),
        (("last",), ("last", None)),
        ((SESSION,), (SESSION, None)),
        (("2026",), ("2026", None)),
        (("And now the docs",), ("last", "And now the docs")),
        ((SESSION, "go"), (SESSION, "go")),
        (("last", "-"), ("last", "-")),
    ],
)
def test_which_word_is_the_session(words: tuple[str, ...], expected: tuple[str, str | None]) -> None:
    """A single word that is no ID is the task; what begins with a digit is an ID, and refused if there is none."""
    assert _split(words) == expected


def test_a_task_needs_quotes() -> None:
    """Three words are a task without them."""
    with pytest.raises(click.UsageError, match="quotes"):
        _split(("go", "on", "please"))


def test_resume_has_the_options_of_run() -> None:
    """But for those that name a session; folder and model are the session's own."""
    options = {parameter.name: parameter for parameter in COMMAND.params}
    assert {"checks", "apply", "policy", "headless"} <= options.keys()
    assert not {"resume", "resume_last", "task"} & options.keys()
    assert (options["model"].default, options["workspace"].default) == (None, None)


def test_a_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do; nothing was started."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "sandbox-agent/sessions" / SESSION
    folder.mkdir(parents=True)
    tape = TapeWriter(folder / "events.jsonl")
    tape.append(replace(STARTED, workspace="/nowhere/at/all"))
    tape.close()
    ended = call("resume", SESSION)

    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "/nowhere/at/all: session" in ended.err
    assert call("resume", "-w", str(tmp_path)).err.endswith(f"there is no earlier session on {tmp_path}\n")
