"""Servers behind a URL: where a name may lead, what is followed, how much is taken, and what is said of it."""

from __future__ import annotations

import logging
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener
from mcp.shared.message import SessionMessage
from mcp_rig import fleet_of, hostile
from mcp_types import JSONRPCRequest

from sandbox_agent.mcp.connection import State
from sandbox_agent.mcp.http import UnreachableServerError, open_url
from sandbox_agent.policy.servers import McpServer, Place, Transport

PROGRAM = Path(__file__).parent.parent / "data" / "mcp_http_server.py"
SECRET = "Bearer sesame-open"


def web(port: int, transport: Transport = Transport.HTTP, **fields: Any) -> McpServer:
    """A server on this machine."""
    path = "mcp" if transport is Transport.HTTP else "sse"
    options: dict[str, Any] = {
        "allow_private": True,
        "startup_timeout_s": 10.0,
        "call_timeout_s": 10.0,
        "headers": {"Authorization": SECRET},
        "url": f"http://127.0.0.1:{port}/{path}",
        **fields,
    }
    return McpServer(name="web", transport=transport, place=Place.HOST, **options)


def _started(kind: str, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The loggers whose messages come to whoever listens to all of them, such as Python itself."""
    names: list[str] = []
    handler = logging.Handler()
    handler.handle = lambda record: bool(names.append(record.name))  # type: ignore[method-assign,func-returns-value]
    logging.getLogger().addHandler(handler)
    yield names
    logging.getLogger().removeHandler(handler)


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


@pytest.mark.parametrize("kind", [Transport.HTTP, Transport.SSE])
async def test_a_server_behind_a_url_works_dies_and_comes_back(
    tmp_path: Path, kind: Transport, logged: list[str]
) -> None:
    """Its calls; when it dies one call fails with a line; when it is there again, the next call works. The package
    says nothing of its own meanwhile, which would have URLs in it."""
    process, port = await anyio.to_thread.run_sync(_started, kind.value)
    try:
        async with fleet_of([web(port, kind), hostile(name="good")], tmp_path) as ground:
            assert await ground.call("mcp__web__echo", text="over there") == "over there"
            assert await ground.call("mcp__web__slow", steps=3) == "done"
            _end(process)
            gone = await ground.call("mcp__web__echo", text="x")
            assert gone.startswith("ERROR the server web"), gone
            assert "sesame" not in gone
            assert await ground.call("mcp__good__echo") == "echo {}"
            process, _ = await anyio.to_thread.run_sync(_started, kind.value, port)
            answers = [await ground.call("mcp__web__echo", text="back") for _ in range(2)]
            assert answers[-1] == "back", answers
        assert [name for name in logged if name.startswith(("mcp", "client"))] == []
    finally:
        _end(process)


async def test_an_address_of_this_machine_is_refused_without_the_entrys_word(tmp_path: Path) -> None:
    """With what to write if it should be."""
    async with fleet_of([web(9, allow_private=False)], tmp_path) as ground:
        (told,) = ground.told
        assert told.state is State.FAILED
        assert "127.0.0.1 leads to 127.0.0.1" in told.error
        assert "allow_private: true" in told.error


Answer = Callable[[SocketStream, bytes], Awaitable[None]]


@asynccontextmanager
async def raw(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A listener that answers each request by hand; gives its port."""

    async def serve(stream: Any) -> None:
        async with stream:
            try:
                await answer(stream, await stream.receive())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = tcp.extra(SocketAttribute.local_port)
    listener: Any = tcp if context is None else TLSListener(tcp.listeners[0], context, standard_compatible=False)
    async with tcp, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield port
        tasks.cancel_scope.cancel()


async def _fault(folder: Path, server: McpServer) -> str:
    async with fleet_of([server], folder) as ground:
        (told,) = ground.told
        assert told.state is State.FAILED
        assert "sesame" not in told.error
        assert "\n" not in told.error
        return told.error


async def test_a_redirect_to_another_host_is_not_followed(tmp_path: Path) -> None:
    """The other host gets no request, and so no header."""
    seen: list[bytes] = []

    async def other(stream: SocketStream, request: bytes) -> None:
        seen.append(request)

    async with raw(other) as there:

        async def redirect(stream: SocketStream, request: bytes) -> None:
            head = f"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:{there}/mcp\r\nContent-Length: 0\r\n\r\n"
            await stream.send(head.encode())

        async with raw(redirect) as port:
            assert await _fault(tmp_path, web(port, startup_timeout_s=5))
    assert seen == []


@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "500 Broken"])
async def test_a_refusal_is_said_without_what_was_sent(tmp_path: Path, status: str) -> None:
    """Also where the server sends the headers back."""

    async def refuse(stream: SocketStream, request: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(request)}\r\n\r\n"
        await stream.send(head.encode() + request)

    async with raw(refuse) as port:
        assert await _fault(tmp_path, web(port, startup_timeout_s=5))


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_without_end_is_given_up(tmp_path: Path, kind: str) -> None:
    """By its size, or at the latest by the server's deadline."""

    async def endless(stream: SocketStream, request: bytes) -> None:
        await stream.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode())
        while True:
            await stream.send(b"x" * 65_536)

    async with raw(endless) as port:
        began_s = time.monotonic()
        assert await _fault(tmp_path, web(port, startup_timeout_s=4))
        assert time.monotonic() - began_s < 10


async def test_a_server_that_never_answers_holds_nothing_up(tmp_path: Path) -> None:
    """Neither the start beyond its deadline, nor the end."""

    async def silent(stream: SocketStream, request: bytes) -> None:
        await anyio.sleep_forever()

    async with raw(silent) as port:
        assert "within 1 s" in await _fault(tmp_path, web(port, startup_timeout_s=1))


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    """In words of TLS."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    await anyio.run_process([*words, "-keyout", str(key), "-out", str(cert)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF

    async def never(stream: SocketStream, request: bytes) -> None:
        raise AssertionError("nothing is sent to it")

    async with raw(never, context) as port:
        error = await _fault(tmp_path, web(port, url=f"https://localhost:{port}/mcp", startup_timeout_s=5))
        assert "certificate" in error.lower()


async def test_a_name_that_leads_elsewhere_the_second_time_is_looked_at_again() -> None:
    """Each connection goes to an address that was judged: what a resolver says later cannot get past."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def request(server: McpServer) -> None:
        async with open_url(server, resolve) as (read, write):
            await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            await read.receive()

    with pytest.raises(BaseExceptionGroup) as told:
        with anyio.fail_after(10):
            await request(web(9, url="http://public.example:9/mcp", allow_private=False))
    assert told.group_contains(UnreachableServerError, match="public.example leads to 127.0.0.1")
    assert asked == ["public.example"]
