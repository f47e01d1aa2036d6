"""What a program of ours in the container still has to write to its stdout, which takes it when the host reads.

Runs in the container (see the package): in the runner, and in the forwarder of `sandboxes.egress`, which is sent it
too.
"""

from __future__ import annotations

import os
from collections import deque


class Outgoing:
    """Frames in order. Those that fit in `most_bytes` go out as one write: fewer messages for the engine to carry."""

    def __init__(self, most_bytes: int) -> None:
        self.size_bytes = 0
        self._most_bytes = most_bytes
        self._waiting: deque[bytes] = deque()

    def add(self, frame: bytes) -> None:
        """It is written with the next `flush`."""
        self._waiting.append(frame)
        self.size_bytes += len(frame)

    def flush(self) -> None:
        """Write what stdout takes now. It must not block. Raises BrokenPipeError where nobody reads any more."""
        try:
            while self._waiting:
                data = self._waiting.popleft()
                while self._waiting and len(data) + len(self._waiting[0]) <= self._most_bytes:
                    data += self._waiting.popleft()
                self._waiting.appendleft(data)
                written = os.write(1, data)
                self.size_bytes -= written
                self._waiting.popleft()
                if written < len(data):
                    self._waiting.appendleft(data[written:])
        except BlockingIOError:
            return
