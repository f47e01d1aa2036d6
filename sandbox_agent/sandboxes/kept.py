"""Keeping head and tail of an output of any length in bounded memory, for back ends that capture on the host."""

from __future__ import annotations


class KeptOutput:
    """Takes bytes in order; holds everything up to `max_bytes`, beyond that the first and the last half of so many."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = max_bytes // 2
        self._buffer = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._max_bytes - len(self._buffer)
        if self.total_bytes <= self._max_bytes:
            self._buffer += data
            return
        self._buffer += data[:room]
        self._tail += data[room:]
        tail_bytes = self._max_bytes - self._head_bytes
        if len(self._tail) > 2 * tail_bytes + 65536:
            del self._tail[: -tail_bytes or None]

    def value(self) -> bytes:
        """What was kept."""
        if self.total_bytes <= self._max_bytes:
            return bytes(self._buffer)
        tail_bytes = self._max_bytes - self._head_bytes
        last = self._buffer[self._head_bytes :] + self._tail
        return bytes(self._buffer[: self._head_bytes] + last[len(last) - tail_bytes :])
