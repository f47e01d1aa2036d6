"""A forked process as the runner sees it.

Runs in the container (see the package).
"""

from __future__ import annotations

import socket
from collections import deque


class Hand:
    """A forked process, waiting for its call or serving it."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.call: int | None = None
        self.waiting: deque[bytes] = deque()

    def pass_on(self, frame: bytes) -> None:
        """Give it a frame, now or as soon as its socket takes it."""
        self.waiting.append(frame)
        self.flush()

    def flush(self) -> None:
        while self.waiting:
            try:
                self.control.send(self.waiting[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError, ConnectionRefusedError):
                self.waiting.clear()
                return
            self.waiting.popleft()
