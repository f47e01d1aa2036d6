"""The frames between the forwarder in the container and the engine: connections of the tools, multiplexed.

A frame is a header (length of the body, kind, connection) and a body, as between host and runner. Connection 0 is the
forwarder itself. In each direction of a connection at most `WINDOW_BYTES` are under way; the receiver gives credit for
what it has passed on.

Runs in the container, too (see the package).
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IBI")
CHUNK_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024
COUNT = struct.Struct(">I")

MAX_CONNECTIONS = 128
"""At once. Further ones wait in the kernel's queue until one of these is over."""

# engine to forwarder, connection 0
FILE = 1
"""A piece of a file to make before listening: its name, a NUL, bytes. Pieces of one name add up."""
LISTEN = 2
"""Body: the port, as a `COUNT`."""

# forwarder to engine, connection 0
READY = 16
FAILED = 17
"""It cannot listen or make a file; body: why. It ends then."""

# both ways
OPEN = 32
"""Only from the forwarder: a connection was accepted. Numbers only grow."""
DATA = 33
CREDIT = 34
"""Body: bytes that were passed on, as a `COUNT`."""
EOF = 35
"""No more data in this direction."""
CLOSE = 36
"""From the engine: close when everything was delivered. From the forwarder: it is over. Last frame of each side."""

MAX_TEXT_BYTES = 900


def frame(kind: int, connection: int, body: bytes = b"") -> bytes:
    """One frame, ready to send."""
    return HEADER.pack(len(body), kind, connection) + body
