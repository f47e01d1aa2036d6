"""The socket between a supervisor and the runner, as the supervisor sees it.

Runs in the container (see the package).
"""

from __future__ import annotations

import contextlib
import socket

from sandbox_agent.sandboxes.runner import wire


class Link:
    """The socket to the runner. It keeps message borders, so one message is one frame."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.call = 0

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame's kind and body; None when the runner is gone."""
        try:
            message = self.control.recv(wire.HEADER.size + wire.MAX_BODY_BYTES)
        except ConnectionResetError:
            return None
        if not message:
            return None
        _, kind, self.call = wire.HEADER.unpack_from(message)
        return kind, message[wire.HEADER.size :]

    def send(self, kind: int, body: bytes = b"") -> None:
        self.send_frame(wire.frame(kind, self.call, body))

    def send_frame(self, frame: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next receive says that it is gone
            self.control.send(frame)

    def send_together(self, frames: list[bytes]) -> None:
        """Several frames in as few messages as hold them: each message costs a wake-up of the runner."""
        message = b""
        for frame in frames:
            if len(message) + len(frame) > wire.MAX_MESSAGE_BYTES:
                self.send_frame(message)
                message = b""
            message += frame
        self.send_frame(message)
