"""The stream of an exec, on an engine that takes nothing of what is sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiodocker
import aiohttp
import anyio
import pytest

from sandbox_agent.sandboxes.exec_stream import open_exec


async def test_what_is_not_taken_holds_no_connection_open(tmp_path: Path) -> None:
    """A stopped program reads nothing: closing its stream closes the connection all the same."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().lower().split("\r\n")
            size = next((int(one.split(":")[1]) for one in lines if one.startswith("content-length:")), 0)
            await reader.readexactly(size)
            if "/start " in lines[0]:
                break
            body = json.dumps({"Id": "e"}).encode()
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n" + length + body)
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n")
        writer.write(b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        await writer.drain()
        await over.wait()
        writer.close()

    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(serve, path)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session:
        client = aiodocker.Docker("unix://localhost", session.connector, session, api_version="v1.41")
        stream = await open_exec(client.containers.container("c"), ["x"], user="1", stdin=True)
        transport = stream._transport()
        assert transport is not None

        async def send() -> None:
            with pytest.raises(BrokenPipeError):
                await stream.send(bytes(8_000_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            while not transport.get_write_buffer_size():
                await anyio.lowlevel.checkpoint()
            await stream.aclose()
            with anyio.fail_after(10):
                while transport.get_extra_info("socket").fileno() != -1:
                    await anyio.lowlevel.checkpoint()
        over.set()
        await client.close()
    server.close()
    await server.wait_closed()
