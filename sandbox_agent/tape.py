"""The transcript on disk: one JSON line an event, each carrying the hash of the line before.

The chain shows that a line was changed or lost *against a head kept elsewhere*; whoever can rewrite the whole
file can also rewrite the chain. A cut last line (the process was killed while writing) is tolerated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.events import Event, decode, encode
from sandbox_agent.types import JsonObject

GENESIS = "0" * 64


class Entry(NamedTuple):
    """One recorded event with its place in the chain."""

    seq: int
    time_unix_s: float
    prev: str
    event: Event


class Tape(NamedTuple):
    """A transcript as read back. `damaged_lines` counts what is not a whole JSON event; `head` hashes the last line."""

    entries: tuple[Entry, ...]
    damaged_lines: int
    chain_ok: bool
    head: str


def _json_default(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"not JSON: {type(value).__name__}")


class TapeWriter:
    """Appends events to a file, created 0600. One writer a file.

    Continuing a file whose last line was cut starts on a line of its own, so that only that line is lost.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seq = 0
        self._head = GENESIS
        if path.exists():
            tape = read_tape(path)
            self._seq = tape.entries[-1].seq + 1 if tape.entries else 0
            self._head = tape.head
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(self._fd).st_size
        if size and not _ends_with_newline(path, size):
            os.write(self._fd, b"\n")

    @property
    def last_seq(self) -> int:
        """The number of the last entry, -1 before the first."""
        return self._seq - 1

    def append(self, event: Event) -> Entry:
        """Write one event; returns it with its place. Events that are not `recorded` must not come here."""
        entry = Entry(self._seq, self._clock(), self._head, event)
        record: JsonObject = {"seq": entry.seq, "time_unix_s": entry.time_unix_s, "prev": entry.prev}
        # surrogatepass: a lone surrogate in model text must not end the run; json escapes it anyway.
        line = json.dumps(record | encode(event), default=_json_default, separators=(",", ":")).encode()
        data = line + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
        self._seq += 1
        self._head = hashlib.sha256(line).hexdigest()
        return entry

    def sync(self) -> None:
        """Force what was written to disk; called at the end of a step."""
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _ends_with_newline(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def read_tape(path: Path) -> Tape:
    """All whole events of a transcript, in order; damaged lines are counted, not raised."""
    entries: list[Entry] = []
    damaged = 0
    chain_ok = True
    head = GENESIS
    for line in path.read_bytes().split(b"\n"):
        if not line:
            continue
        try:
            data = json.loads(line)
            entry = Entry(int(data["seq"]), float(data["time_unix_s"]), str(data["prev"]), decode(data))
        except (ValueError, KeyError, TypeError):
            damaged += 1
            continue
        chain_ok = chain_ok and entry.prev == head
        head = hashlib.sha256(line).hexdigest()
        entries.append(entry)
    return Tape(tuple(entries), damaged, chain_ok, head)
