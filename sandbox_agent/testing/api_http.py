"""As much of HTTP/1.1 as the API double needs, over asyncio streams."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

from sandbox_agent.types import JsonObject

MAX_BODY_BYTES = 32 * 1024 * 1024
"""What the real API takes; more is answered with 413."""

_TOO_LARGE = {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}


class BadHttp(Exception):
    """The connection does not speak HTTP, or is cut."""


class ClientLeft(Exception):
    """The client closed the connection before its answer was complete."""


class HttpRequest(NamedTuple):
    """One request. `path` is without the query, header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """The body as JSON; None when there is none or it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request of a connection, None at its end. One that is too large is answered here.

    Raises:
        BadHttp: no more can be read from this connection.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as exc:
        if not exc.partial:
            return None
        raise BadHttp from exc
    except asyncio.LimitOverrunError as exc:
        raise BadHttp from exc
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    try:
        size = int(headers.get("content-length", "0"))
        if size > MAX_BODY_BYTES:
            await write_plain(writer, 413, _TOO_LARGE)
            raise BadHttp
        content = await reader.readexactly(size)
    except (ValueError, asyncio.IncompleteReadError) as exc:
        raise BadHttp from exc
    return HttpRequest(method, rest.rpartition(" ")[0].partition("?")[0], headers, content)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    known = status in HTTPStatus.__members__.values()
    reason = HTTPStatus(status).phrase if known else "Overloaded"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def write_plain(
    writer: asyncio.StreamWriter, status: int, body: JsonObject | str, headers: Mapping[str, str] | None = None
) -> None:
    """A whole answer: JSON, or text as it is (HTML unless `headers` say otherwise)."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) else "application/json"
    own = {"content-type": kind, "request-id": "req_double", **(headers or {}), "content-length": str(len(content))}
    writer.write(_head(status, own) + content)
    await writer.drain()


async def write_head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    """The head of an answer whose body comes in chunks."""
    writer.write(_head(status, {"request-id": "req_double", **headers, "transfer-encoding": "chunked"}))
    await writer.drain()


def write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One chunk of a body; an empty one ends it."""
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


@dataclass(frozen=True, slots=True)
class Client:
    """The two ends of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def pause(self, seconds: float | None) -> None:
        """Wait (None: for ever), but notice when the client leaves; it sends nothing before its answer is complete.

        Raises:
            ClientLeft: it did.
        """
        if seconds == 0:
            return
        try:
            data = await asyncio.wait_for(self.reader.read(1), seconds)
        except TimeoutError:
            return
        if not data:
            raise ClientLeft

    def reset(self) -> None:
        """Close with RST: what was sent may be lost, as when a middlebox drops the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
