"""The record on disk: chain, cut lines, odd text."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from sandbox_agent.events import Notice, RunFinished, ToolFinished
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.types import Usage


def note(text: str) -> Notice:
    return Notice(level="info", text=text)


def write(path: Path, *texts: str) -> None:
    writer = TapeWriter(path, clock=lambda: 1.5)
    for text in texts:
        writer.append(note(text))
    writer.close()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """Events come back equal, numbered, with the chain whole."""
    path = tmp_path / "tape.jsonl"
    writer = TapeWriter(path)
    events = [
        note("a\n\u2028 \ud800"),
        ToolFinished(
            call_id="c", tool="Read", content=({"type": "text", "text": "x"},), is_error=False, duration_s=1.0
        ),
        RunFinished(status="done", text="t", turns=1, usage=Usage(1, 2, 3, 4), duration_s=2.0),
    ]
    for event in events:
        writer.append(event)
    writer.close()

    tape = read_tape(path)
    assert events == [entry.event for entry in tape.entries]
    assert [entry.seq for entry in tape.entries] == [0, 1, 2]
    assert (tape.damaged_lines, tape.chain_ok) == (0, True)


def test_the_record_is_private(tmp_path: Path) -> None:
    """Nobody else can read it."""
    write(tmp_path / "t", "a")
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o600


def test_a_cut_last_line_costs_only_itself(tmp_path: Path) -> None:
    """As after SIGKILL in the middle of a write: the next record starts on its own line."""
    path = tmp_path / "t"
    write(path, "one", "two")
    os.truncate(path, path.stat().st_size - 9)

    assert (read_tape(path).damaged_lines, [e.event.text for e in read_tape(path).entries]) == (1, ["one"])  # type: ignore[attr-defined]
    write(path, "three")
    tape = read_tape(path)
    assert [e.event.text for e in tape.entries] == ["one", "three"]  # type: ignore[attr-defined]
    assert (tape.damaged_lines, [e.seq for e in tape.entries]) == (1, [0, 1])


def test_an_entry_that_finds_no_room_leaves_no_half_of_it(tmp_path: Path) -> None:
    """The next one that fits follows from the one before it, and the fault names the file."""
    path = tmp_path / "events.jsonl"
    writer = TapeWriter(path)
    writer.append(note("a"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(OSError, match=r"events\.jsonl"):
            writer.append(note("b" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.append(note("c"))
    writer.close()

    tape = read_tape(path)
    assert [entry.event for entry in tape.entries] == [note("a"), note("c")]
    assert (tape.chain_ok, tape.damaged_lines) == (True, 0)


def test_a_changed_line_breaks_the_chain(tmp_path: Path) -> None:
    """One byte of one event is enough."""
    path = tmp_path / "t"
    write(path, "one", "two", "three")
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"2wo"'))
    assert not read_tape(path).chain_ok


def test_a_lost_line_breaks_the_chain(tmp_path: Path) -> None:
    """Leaving one out shows."""
    path = tmp_path / "t"
    write(path, "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    assert not read_tape(path).chain_ok
