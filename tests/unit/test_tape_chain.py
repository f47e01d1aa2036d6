"""The chain of a record: every change of a line shows, and whatever lies in a record's place is one clear line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox_agent.errors import RecordError
from sandbox_agent.events import EVENT_TYPES, Event, PermissionDecided, RunFinished, UserMessage, decode, encode
from sandbox_agent.tape import TapeWriter, read_tape, verify
from sandbox_agent.tape.lines import MAX_LINE_BYTES
from sandbox_agent.types import Usage

EVENTS: list[Event] = [
    UserMessage(content=({"type": "text", "text": "do it"},)),
    PermissionDecided(
        call_id="c",
        tool="Bash",
        verdict="allow",
        reason="r",
        rule="Bash(x)",
        location="f:3",
        input_sha256="a" * 64,
        asked=True,
        mode="default",
        answered_by="person",
        scope="always",
        saved_rules=("Bash(x)",),
    ),
    RunFinished(status="done", text="t", turns=1, usage=Usage(1, 2, 3, 4), duration_s=2.0),
]
FIELDS = ["seq", "time_unix_s", "prev", *encode(EVENTS[1])]


def write(path: Path, events: list[Event] = EVENTS) -> str:
    """A record of these; returns its head."""
    writer = TapeWriter(path, clock=lambda: 1.5)
    for event in events:
        writer.append(event)
    writer.close()
    return writer.head


def other(value: object) -> object:
    """Something of the same sort that is not the same."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case list():
            return [*value, {}]
        case None:
            return "x"
        case _:
            raise AssertionError(value)


def test_an_untouched_record_holds(tmp_path: Path) -> None:
    """The head is what the writer says it is."""
    head = write(tmp_path / "t")
    chain = verify(tmp_path / "t")
    assert (chain.holds, chain.lines, chain.cut_lines, chain.head) == (True, 3, (), head)
    assert head == read_tape(tmp_path / "t").head


@pytest.mark.parametrize("field", FIELDS)
def test_a_change_of_any_field_shows(tmp_path: Path, field: str) -> None:
    """At the line itself, or at the one behind it, which no longer follows."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines()
    data = json.loads(lines[1])
    data[field] = other(data[field])
    lines[1] = json.dumps(data, separators=(",", ":")).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")

    chain = verify(path)
    assert not chain.holds
    assert chain.breaks[0].line in (2, 3)


@pytest.mark.parametrize("place", [0, 1])
def test_a_change_of_any_byte_shows(tmp_path: Path, place: int) -> None:
    """In every line but the last, whatever it says afterwards."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    start = len(lines[0]) * place
    whole = b"".join(lines)
    for at in range(start, start + len(lines[place])):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not verify(path).holds, whole[at : at + 1]


def test_the_last_line_shows_only_against_a_head(tmp_path: Path) -> None:
    """Nothing follows it that could tell; the same goes for lines cut off and for a record written anew."""
    path = tmp_path / "t"
    head = write(path)
    whole = path.read_bytes()

    path.write_bytes(whole.replace(b'"done"', b'"gone"'))
    assert verify(path).holds
    assert head not in verify(path).heads

    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert verify(path).holds
    assert head not in verify(path).heads


def test_a_record_that_was_gone_on_with_still_has_its_earlier_head(tmp_path: Path) -> None:
    """A head kept after the run is found when the session has been resumed since."""
    path = tmp_path / "t"
    head = write(path)
    later = write(path)
    chain = verify(path)
    assert chain.holds
    assert (chain.heads.index(head), chain.head) == (2, later)


@pytest.mark.parametrize(
    ("order", "line", "word"),
    [
        ((0, 2), 2, "1 missing"),
        ((1, 2), 1, "1 missing"),
        ((1, 0, 2), 1, "1 missing"),
        ((0, 1, 1, 2), 3, "moved, or put in"),
        ((0, 2, 1), 2, "1 missing"),
    ],
)
def test_lines_taken_out_moved_or_doubled_show(tmp_path: Path, order: tuple[int, ...], line: int, word: str) -> None:
    """With the line at which it is seen, and what is wrong there."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[at] for at in order))
    first = verify(path).breaks[0]
    assert first.line == line
    assert word in first.reason


@pytest.mark.parametrize("kept", [1, 5, 12, 60])
def test_a_cut_last_line_is_no_break(tmp_path: Path, kept: int) -> None:
    """However little of it was written; and going on with the record leaves it as it is."""
    path = tmp_path / "t"
    write(path)
    first, second, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second + last[:kept])
    assert (verify(path).holds, verify(path).cut_lines, len(verify(path).heads)) == (True, (3,), 2)

    write(path)
    assert (verify(path).holds, verify(path).cut_lines, len(verify(path).heads)) == (True, (3,), 5)


@pytest.mark.parametrize(
    "junk",
    [b"", b"{}", b"null", b"[" * 100_000, b'{"a":' * 50_000, b"\x00\xff\xfe" * 1000, b'{"seq":7,', b"\xed\xa0\x80"],
)
def test_a_line_that_is_none_is_a_break_at_its_place(tmp_path: Path, junk: bytes) -> None:
    """Empty, no object, nested without end, no text, or the beginning of another entry than the one that was due."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + junk + b"\n" + lines[1] + lines[2])

    chain = verify(path)
    assert [found.line for found in chain.breaks] == [2]
    assert len(read_tape(path).entries) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"seq": True},
        {"seq": -1},
        {"seq": 10**40},
        {"seq": "0"},
        {"time_unix_s": float("nan")},
        {"time_unix_s": 10**300},
        {"time_unix_s": None},
        {"prev": ""},
        {"prev": None},
        {"type": 5},
    ],
)
def test_what_frames_an_event_has_one_form(tmp_path: Path, changed: dict[str, object]) -> None:
    """Whoever shows a number or a time need not care what a hand put there."""
    path = tmp_path / "t"
    write(path)
    line, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(json.dumps(json.loads(line) | changed).encode() + b"\n" + b"".join(rest))
    assert verify(path).breaks[0].line == 1
    assert len(read_tape(path).entries) == 2


def test_a_line_without_end_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """And the lines behind it are read as ever."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    with path.open("wb") as file:
        file.write(lines[0])
        file.truncate(len(lines[0]) + MAX_LINE_BYTES + 5)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + lines[1] + lines[2])
    chain = verify(path)
    [found] = chain.breaks
    assert (found.line, f"{MAX_LINE_BYTES + 5:,} bytes" in found.reason, len(chain.heads)) == (2, True, 3)


@pytest.mark.parametrize("place", ["missing", "folder", "fifo", "link", "loop"])
def test_what_is_no_record_is_an_error_at_once(tmp_path: Path, place: str) -> None:
    """Nothing is waited for and no link is followed, by whoever reads or goes on with a record."""
    path, real = tmp_path / "t", tmp_path / "real"
    write(real)
    match place:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(real)
        case "loop":
            path.symlink_to(path)
        case _:
            pass
    for read in (verify, read_tape):
        with pytest.raises(RecordError, match="record"):
            read(path)
    if place != "missing":
        with pytest.raises(RecordError, match="record"):
            TapeWriter(path)


def test_an_event_of_a_later_version_is_a_link_of_the_chain(tmp_path: Path) -> None:
    """Going on behind it keeps the chain whole."""
    path = tmp_path / "t"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"permission_decided", b"permission_dreamt") + b"")
    write(path)
    assert verify(path).holds
    assert (len(read_tape(path).entries), read_tape(path).damaged_lines) == (4, 1)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_an_event_with_a_field_of_another_sort_is_none(name: str) -> None:
    """Nobody who reads records meets a number where a text was to be."""
    with pytest.raises(ValueError, match="agent_id"):
        decode({"type": name, "agent_id": 5})


def test_a_field_that_this_version_does_not_know_is_left_out() -> None:
    """So that an older program reads the records of a newer one of the same form."""
    assert EVENTS[0] == decode(encode(EVENTS[0]) | {"later": 1})
