"""Plain HTTP through the gate: one request a connection, made anew in both directions."""

from __future__ import annotations

import gzip

import anyio
import pytest
from anyio.abc import SocketStream
from egress_rig import PATIENCE_S, all_of, answering, gated, get


async def test_a_plain_answer_is_made_anew_and_ends_the_connection() -> None:
    """Whatever the server said of keeping it; sizes and the body stay."""
    body = gzip.compress(b"x" * 100_000)
    head = b"HTTP/1.1 200 Fine\r\nContent-Encoding: gzip\r\nConnection: keep-alive\r\nKeep-Alive: timeout=9\r\n"
    server = answering(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    async with gated("a.org:80", serve=server) as gate:
        answer = await gate.ask(get("http://a.org/"))

    head, _, received = answer.partition(b"\r\n\r\n")
    assert received == body
    assert head.splitlines() == [
        b"HTTP/1.1 200 Fine",
        b"content-encoding: gzip",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]


async def test_the_request_is_made_anew() -> None:
    """The server sees one Host, a path, no word of the proxy, and a body of the length that was said."""
    seen: list[bytes] = []

    async def record(stream: SocketStream) -> None:
        data = b""
        while not data.endswith(b"body!"):
            data += await stream.receive()
        seen.append(data)
        await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with gated("a.org:8080", serve=record) as gate:
        asked = (
            b"POST http://A.org:8080/x?y HTTP/1.1\r\nHOST: a.org:8080\r\nProxy-Connection: keep-alive\r\n"
            b"X-Mine: 1\r\nContent-Length: 5\r\n\r\n"
        )
        answer = await gate.ask(asked, b"body!", b"GET http://a.org:8080/second HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 204")
    assert answer.count(b"HTTP/") == 1
    assert seen == [
        b"POST /x?y HTTP/1.1\r\nHost: a.org:8080\r\nx-mine: 1\r\ncontent-length: 5\r\nConnection: close\r\n\r\nbody!"
    ]


async def test_a_second_request_on_the_connection_is_never_sent() -> None:
    """Whether it comes with the first, or after the answer; for another host least of all."""
    seen: list[bytes] = []

    async def record(stream: SocketStream) -> None:
        seen.append(await stream.receive())
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        seen.append(await all_of(stream))

    async with gated("a.org:80", serve=record) as gate:
        answer = await gate.ask(get("http://a.org/1") + get("http://b.org/2") + get("http://a.org/3"))
    assert answer.endswith(b"\r\n\r\nok")
    assert b"".join(seen).count(b"GET ") == 1


async def test_a_chunked_body_is_passed_on_and_its_trailers_are_not() -> None:
    """They are headers that nobody has judged."""
    seen: list[bytes] = []

    async def record(stream: SocketStream) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += await stream.receive()
        seen.append(data)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with gated("a.org:80", serve=record) as gate:
        head = b"POST http://a.org/ HTTP/1.1\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n"
        await gate.ask(head, b"3\r\nabc\r\n", b"0\r\nHost: b.org\r\n\r\n")
    assert seen[0].partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "the server's answer is malformed",
        ),
        (b"SSH-2.0-x\r\n", "the server's answer is malformed"),
        (b"HTTP/1.1 200 OK\r\nX: 1\r\n", "the server's answer is malformed, or ended too early"),
        (b"", "the server's answer is malformed, or ended too early"),
    ],
)
async def test_a_server_that_speaks_something_else_is_not_passed_on(answer: bytes, reason: str) -> None:
    """The client gets an error of ours."""
    async with gated("a.org:80", serve=answering(answer)) as gate:
        status, text = await gate.status(get("http://a.org/"))
    assert status == 502
    assert reason in text


async def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    """curl does, with larger bodies."""

    async def serve(stream: SocketStream) -> None:
        data = b""
        while not data.endswith(b"ab"):
            data += await stream.receive()
        await stream.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with gated("a.org:80", serve=serve) as gate, await gate.client() as client:
        await client.send(
            b"PUT http://a.org/ HTTP/1.1\r\nHost: a.org\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        with anyio.fail_after(PATIENCE_S):
            assert (await client.receive()).startswith(b"HTTP/1.1 100 ")
            await client.send(b"ab")
            assert (await all_of(client)).startswith(b"HTTP/1.1 200 ")
