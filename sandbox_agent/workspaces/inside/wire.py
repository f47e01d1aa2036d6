"""Frames between the host and the hands in the container: a size, a letter, a body."""

from __future__ import annotations

import os
import struct
import sys

HEADER = struct.Struct(">Ic")
"""Size of the body, and what the frame is."""

OFFSET = struct.Struct(">Q")
CHUNK = 256 * 1024

# From the host: walk from here; give these files; and the steps of a restore.
WALK, GIVE = b"W", b"G"
REMOVE, FOLDER, FILE, LINK, SYMLINK, FIFO, ATTRIBUTES = b"D", b"M", b"F", b"L", b"S", b"P", b"A"
FINISH_FILE, FINISH = b"C", b"B"

# Both ways: bytes of a file at an offset.
DATA = b"d"

# To the host.
HELLO, WALKED, STATE, STATE_AFTER, FAULT, END, DONE = b"h", b"w", b"s", b"z", b"x", b"e", b"k"


def send(kind: bytes, body: bytes = b"") -> None:
    data = memoryview(HEADER.pack(len(body), kind) + body)
    while data:
        data = data[os.write(1, data) :]


def take(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data
