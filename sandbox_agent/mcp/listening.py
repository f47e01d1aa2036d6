"""How clients reach our server: over the standard streams of this process, or over HTTP on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import mcp_types
import uvicorn
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sandbox_agent.errors import ConfigError

MAX_LINE_BYTES = 16 * 1024 * 1024
HOST = "127.0.0.1"
PATH = "/mcp"

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the client at our standard input until that ends. stdout carries nothing but messages meanwhile."""
    async with _standard_streams() as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def _standard_streams() -> AsyncGenerator[Streams, None]:
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)  # whatever else writes there must not come between the messages
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    refusals = outgoing.clone()
    loop = asyncio.get_running_loop()

    def read() -> None:
        # Not a task: a thread that waits for input cannot be cancelled, and must not keep the process.
        with contextlib.suppress(RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            with os.fdopen(os.dup(0), "rb") as lines:
                while line := lines.readline(MAX_LINE_BYTES):
                    message = _message(line)
                    if message is not None:
                        asyncio.run_coroutine_threadsafe(heard.send(message), loop).result()
                    elif (told := refusal(line)) is not None:
                        asyncio.run_coroutine_threadsafe(refusals.send(told), loop).result()
            asyncio.run_coroutine_threadsafe(heard.aclose(), loop).result()

    async def write() -> None:
        async for message in to_send:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await anyio.to_thread.run_sync(_write_all, wire, text.encode() + b"\n", abandon_on_cancel=True)
            except OSError:  # nobody reads any more: as at the end of the input
                heard.close()
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            refusals.close()
            tasks.cancel_scope.cancel()


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return None


def refusal(line: bytes) -> SessionMessage | None:
    """The answer to a line that is no message, so that nobody waits for one; None where it does not say to what."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return None
    request_id = given.get("id") if isinstance(given, dict) and "method" in given else None
    if not isinstance(request_id, str | int) or isinstance(request_id, bool) or not str(request_id).isprintable():
        return None
    error = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="this is no message that can be read")
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def listening_socket(port: int) -> socket.socket:
    """A socket of this machine only; port 0 takes a free one.

    Raises:
        ConfigError: the port cannot be had.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
        sock.listen()  # now, so that who is told of it can connect
    except OSError as exc:
        sock.close()
        raise ConfigError(f"--http {port}: the port cannot be had ({exc.strerror}); take another one, or 0") from exc
    return sock


async def serve_http(server: Server[Any], sock: socket.socket, token: str) -> None:
    """Serve clients that have the token, until cancelled. Requests for another host or of another site are refused."""
    # What the package tells of refused requests has their headers in it, as they came.
    logging.getLogger("mcp.server").addHandler(logging.NullHandler())
    logging.getLogger("mcp.server").propagate = False
    app = server.streamable_http_app(streamable_http_path=PATH, host=HOST)
    config = uvicorn.Config(
        _TokenNeeded(app, token), log_level="critical", access_log=False, lifespan="on", timeout_graceful_shutdown=0
    )
    listener = _Quiet(config)

    async def listen() -> None:
        # Cancelled in the middle, it would tell of that with a trace; told to end, it ends at once.
        with anyio.CancelScope(shield=True):
            await listener.serve(sockets=[sock])
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        try:
            await anyio.sleep_forever()
        finally:
            listener.should_exit = True


class _Quiet(uvicorn.Server):
    """Signals are the command's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _TokenNeeded:
    """Passes on requests with the token only."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = [value.partition(b" ") for name, value in scope["headers"] if name == b"authorization"]
            # The word before the token may be in any case; the token may not.
            if len(given) != 1 or given[0][0].lower() != b"bearer" or not hmac.compare_digest(given[0][2], self._token):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
                return
        await self._app(scope, receive, send)
