"""Records of other versions, and records that a killed process left: all commands of a session work on them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli_calls import call
from engine_session import make_session, make_tool, play, use
from frontend_events import STARTED

from sandbox_agent.engine.past import load_past
from sandbox_agent.errors import RecordError
from sandbox_agent.events import RECORD_VERSION
from sandbox_agent.tape import TapeWriter, read_tape, verify

OLD = Path(__file__).parents[1] / "data/record_before_versions.jsonl"
"""Written by the program as it was before records named their version: a run with three calls, one of them denied."""

SESSION = "20260101000000abcdef01"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a session's record, in a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "sandbox-agent/sessions" / SESSION
    folder.mkdir(parents=True)
    return folder / "events.jsonl"


def test_a_record_from_before_versions_is_read(record: Path) -> None:
    """Whole: its chain holds, its conversation can be gone on with, and it is listed, shown and exported."""
    shutil.copy(OLD, record)
    tape = read_tape(record)
    past = load_past(record.parents[1], SESSION, Path("/tmp/example/project"))
    listed = json.loads(call("sessions", "list", "--json").out)
    exported = json.loads(call("sessions", "export", SESSION, "-", "--format", "json").out)

    assert "record_version" not in OLD.read_text()
    assert (tape.damaged_lines, tape.chain_ok, len(tape.entries)) == (0, True, 23)
    assert (past.warning, [one["role"] for one in past.messages]) == (None, ["user", "assistant", "user", "assistant"])
    assert (listed["task"], listed["status"], listed["turns"]) == ("Look at it", "denied", 2)
    assert "added     made.txt" in call("sessions", "show", SESSION).out
    assert exported["session"]["status"] == "denied"
    assert call("sessions", "audit", SESSION).code == 0


def test_a_record_of_a_later_version_is_refused_in_one_line(record: Path, tmp_path: Path) -> None:
    """By all that would go by it; it can be listed, audited and removed."""
    tape = TapeWriter(record)
    tape.append(replace(STARTED, workspace=str(tmp_path), record_version=RECORD_VERSION + 1))
    tape.close()
    before = record.read_bytes()
    said = f"the record is of version {RECORD_VERSION + 1}, and this program knows versions up to {RECORD_VERSION}"

    with pytest.raises(RecordError, match=said):
        TapeWriter(record)
    for command in (("show",), ("export", "-", "--format", "json"), ("resume",)):
        ended = call("sessions", command[0], SESSION, *command[1:])
        assert (ended.code != 0, ended.out, said in ended.err) == (True, "", True), ended
        assert ended.err.count("\n") == 1
    assert json.loads(call("sessions", "list", "--json").out)["status"] == "unreadable"
    assert call("sessions", "audit", SESSION).code == 0
    assert record.read_bytes() == before
    assert call("sessions", "rm", SESSION, "--yes").code == 0
    assert not record.exists()


def test_a_record_cut_anywhere_is_listed_shown_and_gone_on_with(record: Path) -> None:
    """As `kill -9` leaves it: after any line, and in the middle of any."""
    whole = OLD.read_bytes()
    lines = whole.splitlines(keepends=True)
    starts = [sum(map(len, lines[:count])) for count in range(len(lines))]
    for size in sorted({*starts, *(start + len(line) // 2 for start, line in zip(starts, lines, strict=True))} - {0}):
        record.write_bytes(whole[:size])
        index = json.loads(call("sessions", "list", "--json").out)
        assert index["status"] in ("unfinished", "denied")
        assert call("sessions", "show", SESSION).code == 0
        past = load_past(record.parents[1], SESSION, Path("/tmp/example/project"))
        tape = TapeWriter(record)
        for message in past.missing:
            tape.append(message)
        tape.close()
        assert verify(record).holds or size < len(lines[0]), f"cut at {size}"  # a first line alone proves nothing yet
        assert load_past(record.parents[1], SESSION, Path("/tmp/example/project")).missing == ()


async def test_the_record_is_forced_to_disk_at_the_end_of_each_turn(tmp_path: Path) -> None:
    """With all that the turn has said; the last time at the end of the run."""
    synced: list[int] = []

    class Watched(TapeWriter):
        def sync(self) -> None:
            synced.append(self.last_seq)
            super().sync()

    turns = [{"tools": [use("Note")]}, {"tools": [use("Note")]}, {"text": "Done."}]
    async with make_session(turns, tmp_path, tools=[make_tool("Note")]) as session:
        session.tape.close()
        session.tape = session.journal.tape = Watched(tmp_path / "events.jsonl")
        events = await play(session)
        while len(synced) < 3:
            await session.sandbox.exec(["true"])  # the disk is written beside what comes next
    recorded = [entry.event.type for entry in read_tape(tmp_path / "events.jsonl").entries]
    ends = [seq for seq, kind in enumerate(recorded) if kind in ("tool_results", "run_finished")]

    assert events[-1].type == "run_finished"
    assert len(ends) == len(synced) == 3
    assert all(done >= end for done, end in zip(synced, ends, strict=True))
