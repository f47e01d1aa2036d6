"""A door before the engine's socket that holds back every container start, to see what else waits for it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream

START = re.compile(rb"POST [^ ]*/containers/[0-9a-f]+/start[ ?]")


@asynccontextmanager
async def slow_engine(engine: Path, door: Path, hold_s: float) -> AsyncIterator[None]:
    """While inside, `door` behaves like the socket `engine`, but every start of a container takes `hold_s` longer."""

    async def serve(client: SocketStream) -> None:
        async with client, await anyio.connect_unix(engine) as server, anyio.create_task_group() as both:
            both.start_soon(_carry, client, server, hold_s)
            await _carry(server, client, 0.0)
            both.cancel_scope.cancel()

    async with await anyio.create_unix_listener(door) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield
        group.cancel_scope.cancel()
    door.unlink(missing_ok=True)


async def _carry(source: ByteReceiveStream, target: SocketStream | ByteSendStream, hold_s: float) -> None:
    """Until the source ends; then the target is told so, as an attached stream's half-close means something."""
    try:
        async for data in source:
            if hold_s and START.match(data):
                await anyio.sleep(hold_s)
            await target.send(data)
        if isinstance(target, SocketStream):
            await target.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
