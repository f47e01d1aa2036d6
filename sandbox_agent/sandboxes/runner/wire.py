"""The frames between the host and the runner, and between the runner and its supervisors.

A frame is a header (length of the body, kind, call) and a body of at most `MAX_BODY_BYTES`. A call begins with its
request in one or more REQUEST frames and ends with exactly one of RESULT, FAIL and DONE. The host never trusts what
comes up: every body has one fixed form, checked in `sandboxes.frames`.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IBI")
CHUNK_BYTES = 64 * 1024
MAX_BODY_BYTES = CHUNK_BYTES + 1024
MAX_MESSAGE_BYTES = HEADER.size + MAX_BODY_BYTES
"""Of one message between runner and supervisor, which may hold several frames upwards and is one frame downwards."""

WINDOW_BYTES = 256 * 1024
"""How much may be under way in each direction of a call before the receiver has said that it took some."""

# host to runner
REQUEST_PART = 1
REQUEST = 2
STDIN = 3
STDIN_EOF = 4
CREDIT = 5
KILL = 6
PING = 7

# runner to host
HELLO = 16
STDOUT = 17
STDERR = 18
ACK = 19
STDIN_CLOSED = 20
META = 21
PATH = 22
PONG = 23
STARTED = 27
RESULT = 24
FAIL = 25
DONE = 26

FINAL_KINDS = frozenset((RESULT, FAIL, DONE))

COUNT = struct.Struct(">I")
"""Body of CREDIT and ACK: a number of bytes."""

RESULT_BODY = struct.Struct(">iBQQdIQdQ")
"""Exit code, flags, bytes of stdout and of stderr in all, seconds, processes killed, bytes spilled, seconds of CPU,
bytes of memory that the largest process had."""

TIMED_OUT = 1
OOM_KILLED = 2
SPILLED = 4

META_BODY = struct.Struct(">IQQ32s")
"""Mode, size of the file, bytes of it that follow as STDOUT frames, SHA-256 of the whole file."""

PATH_BODY = struct.Struct(">BQIQ")
"""Kind, size, mode, mtime in ns; the resolved path follows."""

KIND_MISSING = 0
KIND_FILE = 1
KIND_DIRECTORY = 2
KIND_OTHER = 3

FAIL_BODY = struct.Struct(">BH")
"""Why, and the errno; a text follows."""

FAIL_OS = 0
FAIL_NOT_REGULAR = 1
FAIL_TOO_LARGE = 2
FAIL_FILE_CHANGED = 3
FAIL_PATH_CHANGED = 4
FAIL_KILLED = 5
FAIL_NO_PROCESS = 6

MAX_TEXT_BYTES = 900


def frame(kind: int, call: int, body: bytes = b"") -> bytes:
    """One frame, ready to send."""
    return HEADER.pack(len(body), kind, call) + body


def pieces(kind: int, call: int, data: bytes) -> list[bytes]:
    """Frames that hold `data` in order; none for none."""
    return [frame(kind, call, data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]


def fail(call: int, why: int, number: int, text: str) -> bytes:
    """A FAIL frame; the text is cut to what a frame may hold."""
    return frame(FAIL, call, FAIL_BODY.pack(why, number) + text.encode("utf-8", "replace")[:MAX_TEXT_BYTES])
