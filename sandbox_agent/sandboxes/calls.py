"""The host's side of each kind of call to the runner: which frames it may get, how much, and what comes of them.

A call takes frames until its last one. A frame that it may not get now is a `MalformedError`.
"""

from __future__ import annotations

from collections import deque

from sandbox_agent.sandboxes import frames
from sandbox_agent.sandboxes.frames import Ended, Failure, MalformedError, Meta, Place
from sandbox_agent.sandboxes.runner import wire


class Call:
    """What is common: the end, and the window for bytes sent down."""

    def __init__(self) -> None:
        self.finished = False
        self.failure: Failure | None = None
        self.stdin_closed = False
        self.unacknowledged = 0

    def take(self, kind: int, body: bytes) -> None:
        """One frame of this call.

        Raises:
            MalformedError: it does not belong here.
        """
        if self.finished:
            raise MalformedError("a frame after the last one")
        if kind == wire.FAIL:
            self.failure = frames.failure(body)
            self.finished = True
        elif kind == wire.ACK:
            number = frames.count(body)
            if number > self.unacknowledged:
                raise MalformedError("more bytes taken than were sent")
            self.unacknowledged -= number
        elif kind == wire.STDIN_CLOSED:
            self.stdin_closed = True
        else:
            self.take_answer(kind, body)

    def take_answer(self, kind: int, body: bytes) -> None:
        raise MalformedError(f"frame kind {kind} in this call")


class ExecCall(Call):
    """A program run to its end; its output comes when it has ended, already cut to size."""

    def __init__(self, max_output_bytes: int) -> None:
        super().__init__()
        self._max_output_bytes = max_output_bytes
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.ended: Ended | None = None

    def take_answer(self, kind: int, body: bytes) -> None:
        if kind in (wire.STDOUT, wire.STDERR):
            output = self.stdout if kind == wire.STDOUT else self.stderr
            output += body
            if len(output) > self._max_output_bytes:
                raise MalformedError("more output than may be kept")
        elif kind == wire.RESULT:
            self.ended = frames.ended(body)
            self.finished = True
            for output, total in ((self.stdout, self.ended.stdout_bytes), (self.stderr, self.ended.stderr_bytes)):
                if len(output) != min(total, self._max_output_bytes):
                    raise MalformedError("the output is not as long as it is said to be")
        else:
            super().take_answer(kind, body)


class StreamCall(Call):
    """A program that is talked to; output comes as far as it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: deque[bytes] = deque()
        self.credit = wire.WINDOW_BYTES
        self.started = False
        self.ended: Ended | None = None

    def take_answer(self, kind: int, body: bytes) -> None:
        if kind == wire.STDOUT and body:
            self.credit -= len(body)
            if self.credit < 0:
                raise MalformedError("more output than was asked for")
            self.chunks.append(body)
        elif kind == wire.STARTED and not self.started and not body:
            self.started = True
        elif kind == wire.RESULT:
            self.ended = frames.ended(body)
            self.finished = True
        else:
            super().take_answer(kind, body)


class FileCall(Call):
    """A file described, and a piece of it; `most_bytes` is the largest piece that may come."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.meta: Meta | None = None
        self.data = bytearray()

    def take_answer(self, kind: int, body: bytes) -> None:
        if kind == wire.META and self.meta is None:
            self.meta = frames.meta(body, self._most_bytes)
        elif kind == wire.STDOUT and self.meta is not None:
            self.data += body
            if len(self.data) > self.meta.data_bytes:
                raise MalformedError("more of the file than was announced")
        elif kind == wire.DONE and self.meta is not None and len(self.data) == self.meta.data_bytes and not body:
            self.finished = True
        else:
            super().take_answer(kind, body)


class ResolveCall(Call):
    """Some paths, answered in order."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self.places: list[Place] = []

    def take_answer(self, kind: int, body: bytes) -> None:
        if kind == wire.PATH and len(self.places) < self._number:
            self.places.append(frames.place(body))
        elif kind == wire.DONE and len(self.places) == self._number and not body:
            self.finished = True
        else:
            super().take_answer(kind, body)
