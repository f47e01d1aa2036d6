"""A door before the engine's socket that holds back every container start, to see what else waits for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK_BYTES = 64 * 1024
START = re.compile(rb"POST [^ ]*/containers/[0-9a-f]+/start[ ?]")


@asynccontextmanager
async def slow_engine(engine: Path, door: Path, hold_s: float) -> AsyncIterator[None]:
    """While inside, `door` behaves like the socket `engine`, but every start of a container takes `hold_s` longer."""
    open_tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        try:
            from_engine, to_engine = await asyncio.open_unix_connection(str(engine))
            await asyncio.gather(_carry(reader, to_engine, hold_s), _carry(from_engine, writer, 0.0))
            to_engine.close()
        except asyncio.CancelledError:
            return  # only by the end of the door; asyncio 3.11 prints a traceback for a connection that was cancelled
        finally:
            open_tasks.discard(task)
            writer.close()

    async with await asyncio.start_unix_server(serve, str(door)):
        yield
    for task in open_tasks:
        task.cancel()
    await asyncio.gather(*open_tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, hold_s: float) -> None:
    """Until the source ends; then the target is told so, as an attached stream's half-close means something."""
    with suppress(ConnectionError):
        while data := await source.read(CHUNK_BYTES):
            if hold_s and START.match(data):
                await asyncio.sleep(hold_s)
            target.write(data)
            await target.drain()
        target.write_eof()
