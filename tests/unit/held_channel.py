"""The other end of a runner's byte stream, held by a test."""

from __future__ import annotations

from collections import deque

import anyio


class HeldChannel:
    """What was sent is in `sent`; `say` is what the runner says; `hang_up` ends it."""

    def __init__(self, *said: bytes) -> None:
        self.sent: list[bytes] = []
        self._said = deque(said)
        self._came = anyio.Event()
        self._over = False
        self.readers = 0
        self.most_readers = 0
        self.closed = False

    def say(self, data: bytes) -> None:
        self._said.append(data)
        self._came.set()

    def hang_up(self) -> None:
        self._over = True
        self._came.set()

    async def send(self, data: bytes) -> None:
        if self._over:
            raise BrokenPipeError
        self.sent.append(data)

    async def receive(self) -> bytes:
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        try:
            while not self._said and not self._over:
                self._came = anyio.Event()
                await self._came.wait()
            return self._said.popleft() if self._said else b""
        finally:
            self.readers -= 1

    async def aclose(self) -> None:
        self.closed = True
        self.hang_up()

    def diagnostics(self) -> str:
        return ""
