"""The index of the sessions: quick, and never a reason for `sessions list` to say anything else than the records do."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cli_calls import call
from frontend_events import STARTED, ended

from sandbox_agent.cli.session_index import INDEX_FILE, _checksum, indexed_rows
from sandbox_agent.cli.session_rows import Filter, Row, Since
from sandbox_agent.engine.past import session_ids
from sandbox_agent.events import CheckFinished, CheckStarted, Event, UserMessage
from sandbox_agent.tape import TapeWriter


def task(text: str) -> UserMessage:
    return UserMessage(content=({"type": "text", "text": text},))


class State:
    """A state folder with sessions in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sessions = folder / "sessions"
        self.sessions.mkdir(parents=True)

    def add(self, number: int, *events: Event, at_s: float = 1_000.0) -> Path:
        folder = self.sessions / f"20260101{number:06d}abcdef01"
        folder.mkdir(exist_ok=True)
        tape = TapeWriter(folder / "events.jsonl", clock=lambda: at_s)
        for event in events:
            tape.append(event)
        tape.close()
        return folder / "events.jsonl"

    def rows(self) -> list[Row]:
        return list(indexed_rows(self.folder, self.sessions, session_ids(self.sessions)))

    @property
    def index(self) -> Path:
        return self.folder / INDEX_FILE


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path / "sandbox-agent")
    made.add(1, replace(STARTED, workspace="/home/me/one"), task("Fix the parser"), ended("done"))
    made.add(2, replace(STARTED, workspace="/home/me/one/sub"), task("Write docs"), ended("failed"), at_s=2_000.0)
    made.add(3, replace(STARTED, workspace="/home/me/onetwo"), task("fix it"))
    return made


def told(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.task, row.status) for row in rows]


ALL = [("fix it", "unfinished"), ("Write docs", "failed"), ("Fix the parser", "done")]


def test_a_record_of_the_same_size_and_time_is_read_again(state: State) -> None:
    """The time of the change of a file cannot be put back."""
    first = state.rows()
    for path in state.sessions.glob("*/events.jsonl"):
        before = path.stat()
        with path.open("r+b") as file:
            file.write(b"#" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert told(first) == ALL
    assert told(state.rows()) == [("", "unfinished")] * 3


def test_an_index_that_holds_is_used(state: State) -> None:
    """A row of it, with the right checksum for the very file, is what is said: nobody reads the record."""
    state.rows()
    [name] = [name for name in session_ids(state.sessions) if name.startswith("20260101000001")]
    database = sqlite3.connect(state.index)
    [(stamp, text)] = database.execute("SELECT stamp, row FROM sessions WHERE id = ?", (name,)).fetchall()
    changed = text.replace("Fix the parser", "From the index")
    with database:
        values = (changed, _checksum(name, stamp, changed), name)
        database.execute("UPDATE sessions SET row = ?, checksum = ? WHERE id = ?", values)
    database.close()

    assert told(state.rows())[-1] == ("From the index", "done")


def test_a_row_that_was_damaged_is_read_again(state: State) -> None:
    """Its checksum tells, though the file is an index all the same."""
    state.rows()
    database = sqlite3.connect(state.index)
    with database:
        database.execute("UPDATE sessions SET row = replace(row, 'Fix the parser', 'Broken')")
    database.close()

    assert told(state.rows()) == ALL


def test_a_record_that_grew_is_read_again(state: State) -> None:
    """And what is said of the others stays."""
    state.rows()
    state.add(3, ended("limit"))

    assert told(state.rows()) == [("fix it", "limit"), *ALL[1:]]
    assert told(state.rows()) == [("fix it", "limit"), *ALL[1:]]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5_000])
def test_what_is_no_index_is_made_anew(state: State, content: bytes) -> None:
    """Whatever lies there."""
    state.index.write_bytes(content)

    assert told(state.rows()) == ALL
    assert told(state.rows()) == ALL
    database = sqlite3.connect(state.index)
    assert database.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    database.close()


def test_an_index_cut_anywhere_says_the_same(state: State) -> None:
    """As a killed writer or a full disk may leave it."""
    state.rows()
    whole = state.index.read_bytes()
    for size in range(0, len(whole), 700):
        state.index.write_bytes(whole[:size])
        assert told(state.rows()) == ALL


def test_an_index_of_another_version_is_made_anew(state: State) -> None:
    """Its rows may mean something else."""
    state.rows()
    database = sqlite3.connect(state.index)
    with database:
        database.execute("UPDATE form SET form = '0 other'")
        database.execute("UPDATE sessions SET row = '{}'")
    database.close()

    assert told(state.rows()) == ALL


def test_without_an_index_it_is_only_slower(state: State) -> None:
    """A link or a folder in its place is left alone; a lock of somebody else is waited for, and then gone without."""
    elsewhere = state.folder / "elsewhere"
    elsewhere.write_text("mine")
    state.index.symlink_to(elsewhere)
    assert told(state.rows()) == ALL
    assert elsewhere.read_text() == "mine"
    state.index.unlink()
    state.index.mkdir()
    assert told(state.rows()) == ALL


def test_it_is_for_its_owner_alone(state: State) -> None:
    """The tasks of all sessions are in it."""
    before = os.umask(0)
    try:
        state.rows()
    finally:
        os.umask(before)

    assert stat.S_IMODE(state.index.stat().st_mode) == 0o600


def test_several_at_once_say_the_same(state: State) -> None:
    """While one makes the index others read and write it."""
    for number in range(4, 40):
        state.add(number, STARTED, task(f"task {number}"), ended("done"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: told(state.rows()), range(24)))

    assert found == [found[0]] * 24
    assert len(found[0]) == 39


def test_sessions_that_are_gone_leave_the_index(state: State) -> None:
    """With the next listing."""
    path = state.add(4, STARTED, task("gone"))
    state.rows()
    path.unlink()
    path.parent.rmdir()
    state.rows()
    database = sqlite3.connect(state.index)
    assert database.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    database.close()


def test_a_record_that_cannot_be_read_is_never_indexed(state: State) -> None:
    """A link in its place is told as unreadable, also once a file stands there again."""
    path = state.add(4, STARTED, task("here"))
    path.rename(path.with_name("away"))
    path.symlink_to("away")
    assert told(state.rows())[0] == ("", "unreadable")
    path.unlink()
    path.with_name("away").rename(path)
    assert told(state.rows())[0] == ("here", "unfinished")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["fix it", "Write docs", "Fix the parser"]),
        (("--folder", "/home/me/one"), ["Write docs", "Fix the parser"]),
        (("--status", "done", "--status", "unfinished"), ["fix it", "Fix the parser"]),
        (("--text", "FIX"), ["fix it", "Fix the parser"]),
        (("--text", "FIX", "-n", "1"), ["fix it"]),
        (("--since", "1970-01-03"), []),
    ],
)
def test_filters(state: State, options: tuple[str, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each narrows the list; the limit counts what is left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state.folder.parent))

    code, out, _ = call("sessions", "list", "--json", *options)

    assert code == 0
    assert [json.loads(line)["task"] for line in out.splitlines()] == expected


def test_since_takes_days_times_and_ages() -> None:
    """And says what it takes."""
    take = Since()
    day = take.convert("2026-11-30", None, None)
    assert take.convert("2026-11-30 14:00", None, None) - day == 14 * 3600
    assert take.convert("1d", None, None) - take.convert("2d", None, None) == pytest.approx(86_400, abs=5)
    with pytest.raises(Exception, match="how long ago"):
        take.convert("yesterday", None, None)


def test_a_folder_is_no_prefix_of_a_name() -> None:
    """/a/b is not below /a/bc."""
    assert not Filter(folder=Path("/a/b")).wants(Row("x", workspace="/a/bc"))


def test_a_check_that_did_not_pass_is_a_failed_session(tmp_path: Path) -> None:
    """As the exit code said; while one is still to come, or was killed, the session is not finished."""
    state = State(tmp_path / "s")
    started = [CheckStarted(number=number, count=2, command="pytest") for number in (1, 2)]
    failed, passed = (CheckFinished(number=1, command="pytest", exit_code=code, duration_s=0.1) for code in (1, 0))
    for number, checks in enumerate(
        [
            (),
            (started[0],),
            (started[0], passed),
            (started[0], passed, started[1]),
            (started[0], passed, started[1], passed),
        ]
    ):
        state.add(number, STARTED, task("x"), ended("done"), *checks)
    state.add(5, STARTED, task("x"), ended("done"), started[0], failed, started[1], passed)
    state.add(6, STARTED, task("x"), ended("limit"), started[0], failed, started[1], passed)

    found = [row.status for row in reversed(state.rows())]
    assert found == ["done", "unfinished", "unfinished", "unfinished", "done", "failed", "limit"]
