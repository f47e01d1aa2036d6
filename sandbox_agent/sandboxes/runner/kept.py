"""Keeping the head and the tail of an output of any length in bounded memory; in the container and on the host."""

from __future__ import annotations


class KeptOutput:
    """Takes bytes in order; holds everything up to `max_bytes`, beyond that the first and the last half of so many."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self._head_bytes = max_bytes // 2
        self._tail_bytes = max_bytes - self._head_bytes
        self._first = bytearray()
        self._last = bytearray()

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = max(0, self.max_bytes - len(self._first))
        self._first += data[:room]
        self._last += data[room:]
        if len(self._last) > 2 * self._tail_bytes + 65536:
            del self._last[: len(self._last) - self._tail_bytes]

    @property
    def cut(self) -> bool:
        """More came than is kept."""
        return self.total_bytes > self.max_bytes

    def value(self) -> bytes:
        """What was kept."""
        if not self.cut:
            return bytes(self._first)
        last = self._first[self._head_bytes :] + self._last
        return bytes(self._first[: self._head_bytes] + last[len(last) - self._tail_bytes :])
