"""Keeping the head and the tail of an output of any length in bounded memory; in the container and on the host."""

from __future__ import annotations

LIVE_MAX_BYTES = 16 * 1024 * 1024
"""Of a file that is written as output comes: many may be written at once, and where they lie is often memory."""

MARK_BYTES = 200
"""More than the line in `rest` has."""


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


def rest(kept: KeptOutput, written_bytes: int) -> bytes:
    """What to put behind the first `written_bytes` of an output when it has ended: nothing, the bytes that are missing,
    or, where these are no longer known, a line that says how many they are and the last ones."""
    missing = kept.total_bytes - written_bytes
    if missing <= 0:
        return b""
    last = kept.value()
    if kept.cut:
        last = last[kept.max_bytes // 2 :]
    if missing <= len(last):
        return last[len(last) - missing :]
    return b"\n[... %d bytes are left out here ...]\n" % (missing - len(last)) + last
