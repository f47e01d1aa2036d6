"""Calls that are wanted no more before they have ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Withdrawn:
    """Calls of one agent that whoever made them wants no more, each by itself, while others of the same turn go on."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._running: dict[str, anyio.CancelScope] = {}

    def add(self, call_id: str) -> None:
        """End the call, now or when its turn comes."""
        self._ids.add(call_id)
        if call_id in self._running:
            self._running[call_id].cancel()

    @contextmanager
    def running(self, call_id: str) -> Iterator[anyio.CancelScope]:
        """Run a call in here, unless, or until, it is wanted no more; the scope says so."""
        with anyio.CancelScope() as scope:
            self._running[call_id] = scope
            if call_id in self._ids:
                scope.cancel()
            try:
                yield scope
            finally:
                del self._running[call_id]
                self._ids.discard(call_id)
