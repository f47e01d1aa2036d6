"""A record on disk, cut into lines: whatever lies in its place, reading it ends, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sandbox_agent.errors import RecordError
from sandbox_agent.types import JsonObject

MAX_LINE_BYTES = 128 * 1024 * 1024
"""No event of ours comes near: a request to a model may have 32 MB."""

_DIGEST_CHARS = 64
_MAX_ENTRIES = 2**53
_YEAR_3000_UNIX_S = 32_503_680_000
"""What no clock shows is no time: whoever shows it need not care."""

_PIECE_BYTES = 1024 * 1024


class Line(NamedTuple):
    """One line, counted from 1, without its end. `data` is empty when it is longer than `MAX_LINE_BYTES`; `sha256` and
    `size_bytes` are of all of it. `ended` is False for a last line that has no end."""

    number: int
    data: bytes
    sha256: str
    size_bytes: int
    ended: bool


class Link(NamedTuple):
    """What every whole line has: its number in the record, its time, the hash of the line before, and its event."""

    seq: int
    time_unix_s: float
    prev: str
    data: JsonObject


def open_record(path: Path) -> BinaryIO:
    """The file of a record, for reading; never waits, never follows a link.

    Raises:
        RecordError: it is not there, is no regular file, or cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise RecordError(f"{path}: there is no record; it was removed, or never written") from None
    except OSError as error:
        what = "a link stands in its place" if path.is_symlink() else (error.strerror or str(error)).lower()
        raise RecordError(f"{path}: the record cannot be read: {what}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RecordError(f"{path}: the record cannot be read: what is in its place is no file")
    return os.fdopen(fd, "rb")


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a record, in order.

    Raises:
        RecordError: see `open_record`; also when reading fails in the middle.
    """
    with open_record(path) as file:
        number = 0
        try:
            while first := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield _line(number, first, file)
        except OSError as error:
            raise RecordError(f"{path}:{number + 1}: the record cannot be read: {error.strerror}") from error


def _line(number: int, first: bytes, file: BinaryIO) -> Line:
    ended = first.endswith(b"\n")
    if ended or len(first) <= MAX_LINE_BYTES:
        data = first[:-1] if ended else first
        return Line(number, data, hashlib.sha256(data).hexdigest(), len(data), ended)
    digest, size = hashlib.sha256(first), len(first)
    while not ended and (piece := file.readline(_PIECE_BYTES)):
        ended = piece.endswith(b"\n")
        piece = piece[:-1] if ended else piece
        digest.update(piece)
        size += len(piece)
    return Line(number, b"", digest.hexdigest(), size, ended)


def parse(line: Line) -> Link | None:
    """The line as an entry of a record; None where it is none. The event in it may still be unknown or misshapen."""
    try:
        data = json.loads(line.data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    seq, moment, prev = data.get("seq"), data.get("time_unix_s"), data.get("prev")
    if type(seq) is not int or not 0 <= seq < _MAX_ENTRIES:
        return None
    if not isinstance(moment, int | float) or not 0 <= moment < _YEAR_3000_UNIX_S:
        return None
    if not isinstance(prev, str) or len(prev) != _DIGEST_CHARS or not isinstance(data.get("type"), str):
        return None
    return Link(seq, float(moment), prev, data)
