"""An index of the sessions, so that listing thousands of them reads no record that it has read before.

The records are the truth. A row of the index counts only while the record is the very file that it was read from (size,
times, inode) and the row is whole (checksum); otherwise the record is read again. So the index may be missing, damaged,
of another version or locked by others at any time: listing is slower then, and says the same.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from sandbox_agent import __version__
from sandbox_agent.cli.session_rows import Row, read_row, unreadable
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.errors import RecordError
from sandbox_agent.types import Usage

INDEX_FILE = "sessions.sqlite3"
"""In the state folder, beside the sessions."""

_FORM = f"1 {__version__}"
"""Another program may make other rows from the same record."""

_WAIT_S = 2.0
_WRITE_AT_ONCE = 200
_TABLES = (
    "CREATE TABLE IF NOT EXISTS form (form TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, row TEXT NOT NULL, "
    "checksum INTEGER NOT NULL) WITHOUT ROWID",
)


class _Kept(NamedTuple):
    stamp: str
    row: str
    checksum: int


def indexed_rows(state: Path, sessions: Path, session_ids: Sequence[str]) -> Generator[Row, None, None]:
    """Row by row, from the index where it still holds. Never raises for the index's sake.

    Args:
        state: the folder that the index is in.
        sessions: the folder of the sessions.
        session_ids: all there are, in the order wanted.
    """
    index = _Index(state / INDEX_FILE)
    kept = index.load()
    fresh: dict[str, _Kept] = {}
    try:
        for session_id in session_ids:
            stamp = _stamp(sessions / session_id / EVENTS_FILE)  # before it is read: what is written meanwhile differs
            row = _row(session_id, kept.get(session_id), stamp)
            if row is None:
                try:
                    row = read_row(sessions, session_id)
                except RecordError:
                    yield unreadable(session_id)
                    continue
                if stamp is not None:
                    text = json.dumps(asdict(row))
                    fresh[session_id] = _Kept(stamp, text, _checksum(session_id, stamp, text))
            if len(fresh) >= _WRITE_AT_ONCE:
                index.save(fresh)
                fresh = {}
            yield row
    finally:
        gone = kept.keys() - set(session_ids)
        if fresh or gone:
            index.save(fresh, gone)


def _stamp(path: Path) -> str | None:
    """What changes whenever the file does; None where it is no file."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}"


def _checksum(session_id: str, stamp: str, row: str) -> int:
    return zlib.crc32("\0".join((session_id, stamp, row)).encode("utf-8", "surrogatepass"))


def _row(session_id: str, kept: _Kept | None, stamp: str | None) -> Row | None:
    if kept is None or kept.stamp != stamp or kept.checksum != _checksum(session_id, kept.stamp, kept.row):
        return None
    fields = json.loads(kept.row)
    return Row(**{**fields, "usage": Usage(**fields["usage"])})


class _Index:
    """The file. What is no index of ours is thrown away and made anew; what cannot be used at all is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, _Kept]:
        """Every row by the session's ID; none where there is no index that can be used."""
        try:
            with closing(self._open()) as database:
                found = database.execute("SELECT id, stamp, row, checksum FROM sessions").fetchall()
            return {str(name): _Kept(str(stamp), str(row), int(checksum)) for name, stamp, row, checksum in found}
        except sqlite3.OperationalError:
            return {}  # locked, or the disk is full or read-only
        except (sqlite3.DatabaseError, ValueError, TypeError):
            self._path.unlink(missing_ok=True)
            return {}
        except OSError:
            return {}

    def save(self, rows: Mapping[str, _Kept], gone: Collection[str] = ()) -> None:
        """Add or replace rows, and forget sessions; where that fails the next listing reads the records again."""
        try:
            with closing(self._open()) as database, database:
                database.executemany("DELETE FROM sessions WHERE id = ?", [(name,) for name in gone])
                database.executemany(
                    "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
                    [(name, *kept) for name, kept in rows.items()],
                )
        except (sqlite3.Error, OSError, UnicodeEncodeError):
            return

    def _open(self) -> sqlite3.Connection:
        # Made by us, so that it is ours alone and never behind a link; sqlite gives its journal the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._path, timeout=_WAIT_S)
        try:
            with database:
                for table in _TABLES:
                    database.execute(table)
                if database.execute("SELECT form FROM form").fetchall() != [(_FORM,)]:
                    database.execute("DELETE FROM sessions")
                    database.execute("DELETE FROM form")
                    database.execute("INSERT INTO form VALUES (?)", (_FORM,))
        except BaseException:
            database.close()
            raise
        return database
