"""The transport of a connection, with an eye on it: what comes is made fit, and its end is told to the owner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio

from sandbox_agent.mcp.incoming import made_fit

Streams = AbstractAsyncContextManager[Any]


class WatchedTransport:
    """What `streams` makes, with a word to the owner when its reading end is at its end."""

    def __init__(self, streams: Callable[[], Streams], lost: Callable[[], None]) -> None:
        self._streams = streams
        self._lost = lost
        self._entered: Streams | None = None

    async def __aenter__(self) -> tuple[Any, Any]:
        self._entered = self._streams()
        read, write = await self._entered.__aenter__()
        return _Reading(read, self._lost), write

    async def __aexit__(self, *exc: Any) -> bool | None:
        assert self._entered is not None
        return await self._entered.__aexit__(*exc)


class _Reading:
    """A reading end that makes what it gives fit, and tells of its end."""

    def __init__(self, stream: Any, lost: Callable[[], None]) -> None:
        self._stream = stream
        self._lost = lost

    async def receive(self) -> Any:
        try:
            return made_fit(await self._stream.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._lost()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Reading:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
