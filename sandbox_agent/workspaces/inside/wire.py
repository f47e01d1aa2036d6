"""Frames between the host and the hands in the container: a size, a letter, a body."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable

HEADER = struct.Struct(">Ic")
"""Size of the body, and what the frame is."""

OFFSET = struct.Struct(">Q")
CHUNK = 256 * 1024
SMALL = 64 * 1024
"""A file up to this size goes in one frame."""

# From the host: walk from here; give these files; and the steps of a restore.
WALK, GIVE = b"W", b"G"
REMOVE, FOLDER, FILE, LINK, SYMLINK, FIFO, ATTRIBUTES = b"D", b"M", b"F", b"L", b"S", b"P", b"A"
FINISH_FILE, FINISH = b"C", b"B"

# Both ways: bytes of a file at an offset; a small file with all that belongs to it.
DATA, WHOLE = b"d", b"f"

# To the host.
HELLO, WALKED, GONE, STATE, STATE_AFTER, FAULT, END, DONE = b"h", b"w", b"r", b"s", b"z", b"x", b"e", b"k"


_AWAITED = (HELLO, END, DONE)
_LARGE = 32 * 1024
_MANY = 64


class Out:
    """Frames to the host: at once where it waits for them, else together with the next ones."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.waiting.append(HEADER.pack(len(body), kind) + body)
        if kind in _AWAITED or len(body) > _LARGE or len(self.waiting) > _MANY:
            data = memoryview(b"".join(self.waiting))
            self.waiting.clear()
            while data:
                data = data[os.write(1, data) :]

    def send_joined(self, kind: bytes, texts: Iterable[bytes]) -> None:
        """Texts in frames of some size."""
        joined: list[bytes] = []
        size = 0
        for text in texts:
            joined.append(text)
            size += len(text)
            if size >= CHUNK:
                self.send(kind, b"".join(joined))
                joined, size = [], 0
        if joined:
            self.send(kind, b"".join(joined))


def take(size: int) -> bytes:
    parts = []
    while size:
        more = os.read(0, size)
        if not more:
            sys.exit(0)
        parts.append(more)
        size -= len(more)
    return b"".join(parts)
