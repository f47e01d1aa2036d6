"""Writing a record, and reading its events. A cut last line (the process was killed while writing) is tolerated."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.errors import RecordError
from sandbox_agent.events import RECORD_VERSION, Event, SessionStarted, decode, encode
from sandbox_agent.tape.chain import GENESIS
from sandbox_agent.tape.lines import open_record, parse, read_lines
from sandbox_agent.types import JsonObject


class Entry(NamedTuple):
    """One recorded event with its place in the chain."""

    seq: int
    time_unix_s: float
    prev: str
    event: Event


class Tape(NamedTuple):
    """A transcript as read back. `damaged_lines` counts what is no whole event that this version knows; `head` hashes
    the last whole line, `next_seq` is the number that comes next."""

    entries: tuple[Entry, ...]
    damaged_lines: int
    chain_ok: bool
    head: str
    next_seq: int


def _json_default(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"not JSON: {type(value).__name__}")


class TapeWriter:
    """Appends events to a file, created 0600. One writer a file.

    Continuing a file whose last line was cut starts on a line of its own, so that only that line is lost.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Raises RecordError: what is there cannot be read, or is of a later version, and so not be gone on with."""
        self._clock = clock
        self._path = path
        self._seq = 0
        self._head = GENESIS
        if os.path.lexists(path):
            tape = read_tape(path)
            self._seq = tape.next_seq
            self._head = tape.head
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(self._fd).st_size
        if size and not _ends_with_newline(path, size):
            os.write(self._fd, b"\n")

    @property
    def head(self) -> str:
        """The hash of the last line: kept elsewhere, it shows any later change of what is written by now."""
        return self._head

    @property
    def last_seq(self) -> int:
        """The number of the last entry, -1 before the first."""
        return self._seq - 1

    def append(self, event: Event) -> Entry:
        """Write one event; returns it with its place. Events that are not `recorded` must not come here.

        Raises:
            OSError: there is no room for it, or the disk failed; the record is as before.
        """
        entry = Entry(self._seq, self._clock(), self._head, event)
        record: JsonObject = {"seq": entry.seq, "time_unix_s": entry.time_unix_s, "prev": entry.prev}
        # surrogatepass: a lone surrogate in model text must not end the run; json escapes it anyway.
        line = json.dumps(record | encode(event), default=_json_default, separators=(",", ":")).encode()
        self._write(line + b"\n")
        self._seq += 1
        self._head = hashlib.sha256(line).hexdigest()
        return entry

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as exc:
            os.ftruncate(self._fd, size)  # the next entry would be glued to the half that found room
            raise OSError(exc.errno, exc.strerror, str(self._path)) from exc

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def sync(self) -> None:
        """Force what was written to disk; called at the end of a step."""
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refuse_newer(path: Path, data: JsonObject) -> None:
    """A record says its version in each `session_started`; one that says none is of the first."""
    version = data.get("record_version", RECORD_VERSION)
    if data["type"] == SessionStarted.type and isinstance(version, int) and version > RECORD_VERSION:
        raise RecordError(
            f"{path}: the record is of version {version}, and this program knows versions up to {RECORD_VERSION}; "
            "use the newer sandbox-agent that wrote it"
        )


def _ends_with_newline(path: Path, size: int) -> bool:
    with open_record(path) as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def read_tape(path: Path, *, newer: bool = False, only: Collection[type[Event]] | None = None) -> Tape:
    """All whole events of a transcript, in order; damaged lines are counted, not raised.

    Args:
        path: the file.
        newer: read one of a later version, too; what it says may mean something else there.
        only: give events of these types alone, which is several times as quick; None is all.

    Raises:
        RecordError: there is no such file, what is in its place cannot be read, or a later program wrote it.
    """
    entries: list[Entry] = []
    damaged, seq = 0, 0
    chain_ok = True
    head = GENESIS
    wanted = None if only is None else {kind.type for kind in only}
    for line in read_lines(path):
        link = parse(line)
        if link is None:
            damaged += line.size_bytes > 0
            continue
        chain_ok = chain_ok and link.prev == head
        head, seq = line.sha256, link.seq + 1
        if not newer:
            _refuse_newer(path, link.data)
        if wanted is not None and link.data["type"] not in wanted:
            continue
        try:
            entries.append(Entry(link.seq, link.time_unix_s, link.prev, decode(link.data)))
        except ValueError:
            damaged += 1
    return Tape(tuple(entries), damaged, chain_ok, head, seq)
