"""The cases of reading streams: text cut inside a character, and frames of an engine as small as they can come."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiodocker
import aiohttp
import anyio
import pytest

from sandbox_agent.sandboxes.calls import ExecCall
from sandbox_agent.sandboxes.exec_stream import ExecStream, open_exec
from sandbox_agent.sandboxes.runner import wire

RESULT = wire.RESULT_BODY.pack(0, 0, 0, 0, 0.5, 0, 0, 0.0, 0)


@pytest.mark.parametrize(
    ("sent", "stdout", "stderr"),
    [
        ([(1, b"caf\xc3"), (2, b"x"), (1, b"\xa9 fin")], "café fin", "x"),
        ([(2, b"caf\xc3"), (1, b"x"), (2, b"\xa9 fin")], "x", "café fin"),
        ([(1, b"\xe4"), (2, b"\xe4"), (1, b"\xb8"), (2, b"\xb8"), (1, b"\xad"), (2, b"\xad")], "中", "中"),
        ([(1, bytes([byte])) for byte in "a\U0001f600é\n".encode()] + [(2, b"x")], "a\U0001f600é\n", "x"),
        ([(1, b"cut \xf0\x9f"), (2, b"ok")], "cut \ufffd", "ok"),
    ],
)
def test_dev_13_a_character_cut_between_frames_is_whole(
    sent: list[tuple[int, bytes]], stdout: str, stderr: str
) -> None:
    """Each stream is put together by itself, whatever comes between; only what never came is replaced."""
    call = ExecCall(1000)
    for stream, data in sent:
        call.take(wire.STDOUT if stream == 1 else wire.STDERR, data)
    assert call.stdout.decode("utf-8", "replace") == stdout
    assert call.stderr.decode("utf-8", "replace") == stderr


@asynccontextmanager
async def engine(path: Path, pieces: list[bytes], *, tty: bool) -> AsyncIterator[aiodocker.Docker]:
    """A client of an engine whose only exec sends these pieces, the first together with the upgrade's headers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().lower().split("\r\n")
            size = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
            await reader.readexactly(size)
            if "/start " in lines[0]:
                upgrade = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
                writer.write(upgrade + b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + pieces[0])
                for piece in pieces[1:]:
                    await writer.drain()
                    await anyio.lowlevel.checkpoint()
                    writer.write(piece)
                break
            body = json.dumps({"Id": "e", "ProcessConfig": {"tty": tty}, "ExitCode": 0}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
        client = aiodocker.Docker("unix://localhost", session.connector, session, api_version="v1.41")
        yield client
        await client.close()
    server.close()
    await server.wait_closed()


async def _attached(execution: aiodocker.execs.Exec) -> ExecStream:
    stream = execution.start(detach=False)
    await stream._init()
    return ExecStream(execution, stream)


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


BOTH = frame(1, b"a\n") + frame(2, b"b\n")
MANY = frame(1, b"") + frame(1, b"x" * 300) + frame(2, b"\x01\x00\x00\x00\x00\x00\x00\x05") + frame(1, b"z")


@pytest.mark.parametrize(
    ("pieces", "tty", "stdout", "stderr"),
    [
        ([BOTH[at : at + 1] for at in range(len(BOTH))], False, b"a\n", b"b\n"),
        ([BOTH], False, b"a\n", b"b\n"),
        ([BOTH[:3], BOTH[3:9], BOTH[9:]], False, b"a\n", b"b\n"),
        ([MANY[at : at + 1] for at in range(len(MANY))], False, b"x" * 300 + b"z", b"\x01\x00\x00\x00\x00\x00\x00\x05"),
        ([b"IPython 8"], True, b"IPython 8", b""),
        ([b"I", b"Python", b" 8"], True, b"IPython 8", b""),
        ([b"\x01\x00\x00\x00\x00\x00\x00\x05text"], True, b"\x01\x00\x00\x00\x00\x00\x00\x05text", b""),
    ],
)
async def test_dev_14_frames_are_told_from_plain_text(
    tmp_path: Path, pieces: list[bytes], tty: bool, stdout: bytes, stderr: bytes
) -> None:
    """Of a terminal the text comes unchanged; else both streams without their headers, however they were cut."""
    got = {1: b"", 2: b""}
    async with engine(tmp_path / "s", pieces, tty=tty) as client:
        # We never ask for a terminal; an exec that has one all the same is known by asking the engine.
        if tty:
            stream = await _attached(aiodocker.execs.Exec(client, "e"))
        else:
            stream = await open_exec(client.containers.container("c"), ["x"], user="1", stdin=False)
        with anyio.fail_after(10):
            while (message := await stream.receive_either()) is not None:
                got[message[0]] += message[1]
        await stream.aclose()
    assert got == {1: stdout, 2: stderr}
