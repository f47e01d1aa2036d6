"""The gate at work, without a container: a real forwarder, real sockets, and a world of our own behind."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from anyio.abc import SocketStream
from egress_rig import HELLO, WORLD, all_of, client_hello, connect_to, gated, get

from sandbox_agent.sandboxes.egress.ledger import TOLD_EACH, Decided
from sandbox_agent.sandboxes.egress.proxy import Caps
from sandbox_agent.sandboxes.egress.sni import ACCESS_DENIED

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def echo(stream: SocketStream) -> None:
    """A server that gives back what it gets."""
    async for data in stream:
        await stream.send(data)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_tunnel_carries_tls_to_its_own_name(version: str) -> None:
    """Both ways, to the end of both."""
    async with gated("a.org:443", serve=echo) as gate:
        hello = client_hello("a.org")
        answer = await gate.ask(connect_to("A.org:443", version), hello, b"more", close=True)

    assert answer == ESTABLISHED + hello + b"more"
    assert gate.world.dialled == [(WORLD, 443)]
    assert gate.decisions == [("a.org:443", True, "listed")]
    [end] = gate.ended
    assert (end.sent_bytes, end.received_bytes, end.reason) == (len(hello) + 4, len(hello) + 4, None)


async def test_a_hello_may_come_in_pieces() -> None:
    """Of one byte each, and with the request."""
    hello = client_hello("a.org")
    async with gated("a.org:443", serve=echo) as gate:
        pieces = [hello[at : at + 1] for at in range(len(hello))]
        assert await gate.ask(connect_to("a.org:443") + pieces[0], *pieces[1:], close=True) == ESTABLISHED + hello


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (client_hello("b.org"), "the TLS name is 'b.org', but a.org was asked for"),
        (client_hello(None), "the TLS ClientHello names no host (no SNI)"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what was sent is not TLS; a tunnel carries nothing else"),
        (b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", "what was sent is not TLS; a tunnel carries nothing else"),
    ],
)
async def test_nothing_reaches_the_server_before_its_name_is_right(sent: bytes, reason: str) -> None:
    """A TLS client is told with an alert; the record says why."""
    seen: list[bytes] = []

    async def record(stream: SocketStream) -> None:
        seen.append(await all_of(stream))

    async with gated("a.org:443", serve=record) as gate:
        assert await gate.ask(connect_to("a.org:443"), sent) == ESTABLISHED + ACCESS_DENIED
        assert gate.decisions == [("a.org:443", False, f"a.org:443 is refused: {reason}")]
    assert b"".join(seen) == b""


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        (connect_to("b.org:443"), 403, "b.org:443 is not in sandbox.allow_hosts"),
        (connect_to("a.org:22"), 403, "a.org:22 is not in sandbox.allow_hosts"),
        (connect_to("169.254.169.254:80"), 403, "169.254.169.254:80 is not in sandbox.allow_hosts"),
        (connect_to("[::1]:22"), 403, "[::1]:22 is not in sandbox.allow_hosts"),
        (connect_to("a.org.:80"), 403, "a.org:80 is not in sandbox.allow_hosts"),
        (connect_to("2130706433:443"), 400, "the host is not a host name, nor an IPv4 address of four plain decimal"),
        (get("http://b.org/"), 403, "b.org:80 is not in sandbox.allow_hosts"),
        (get("http://a.org/"), 403, "a.org:80 is not in sandbox.allow_hosts"),
        (get("http://a.org:443/", host="b.org"), 400, "the Host header is not the host that is asked for"),
        (b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", 400, "this is the sandbox's proxy; it serves nothing itself"),
        (b"nonsense\n\n", 400, "not an HTTP request"),
        (client_hello("a.org") + b"\r\n\r\n", 400, "the request has bare line ends or NULs"),
        (b"GET http://a.org:443/ HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, 431, "the request's head is too long"),
    ],
)
async def test_a_refusal_comes_at_once_and_says_what_to_change(asked: bytes, status: int, reason: str) -> None:
    """In the status line, which pip shows, and in the text, which git shows; nothing was resolved or connected to."""
    async with gated("a.org:443") as gate:
        answer = await gate.ask(asked)
    head, _, body = answer.decode().partition("\r\n\r\n")

    assert head.startswith(f"HTTP/1.1 {status} {reason}")
    assert body.startswith(f"sandbox-agent: {reason}")
    assert (gate.world.resolved, gate.world.dialled) == ([], [])
    assert [(allowed, why) for _, allowed, why in gate.decisions] == [(False, body[15:-1])]


async def test_an_empty_list_lets_nothing_pass() -> None:
    """Neither form of request."""
    async with gated() as gate:
        assert (await gate.status(connect_to("a.org:443")))[0] == 403
        assert (await gate.status(get("http://a.org/")))[0] == 403


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["127.0.0.1"], "a.org:80 leads to 127.0.0.1 (loopback)"),
        (["169.254.169.254"], "a.org:80 leads to 169.254.169.254 (cloud metadata)"),
        (["10.0.0.1"], "a.org:80 leads to 10.0.0.1 (private); allow_private: true at its entry"),
        (["::ffff:10.0.0.1"], "a.org:80 leads to ::ffff:10.0.0.1 (IPv4-mapped)"),
        ([], "a.org:80 has no address"),
    ],
)
async def test_a_listed_name_that_leads_elsewhere_is_refused(addresses: Sequence[str], reason: str) -> None:
    """It was resolved once, and nothing was connected to."""
    async with gated("a.org:80") as gate:
        gate.world.addresses["a.org"] = addresses
        _, text = await gate.status(get("http://a.org/"))

    assert text.startswith(reason)
    assert (gate.world.resolved, gate.world.dialled) == (["a.org"], [])


async def test_the_checked_address_is_the_one_connected_to() -> None:
    """A resolver that changes its answer between the check and the connection is asked once."""
    async with gated("a.org:80") as gate:
        gate.world.answers = [["198.51.100.1"], ["127.0.0.1"], ["127.0.0.1"]]
        await gate.ask(get("http://a.org/"))
        status, text = await gate.status(get("http://a.org/"))
    assert gate.world.dialled == [("198.51.100.1", 80)]
    assert (status, text) == (403, "a.org:80 leads to 127.0.0.1 (loopback)")


async def test_large_bodies_pass_whole_in_both_directions() -> None:
    """Beyond every window, with slow readers on both sides."""
    sent = bytes(range(256)) * 8192
    received: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        data = bytearray()
        while len(data) < len(sent) or not data.endswith(sent):
            data += await stream.receive()
        received.append(bytes(data).partition(b"\r\n\r\n")[2])
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent)

    async with gated("a.org:80", serve=serve) as gate:
        head = b"PUT http://a.org/ HTTP/1.1\r\nHost: a.org\r\nContent-Length: %d\r\n\r\n" % len(sent)
        answer = await gate.ask(head + sent)
    assert received == [sent]
    assert answer.partition(b"\r\n\r\n")[2] == sent


async def test_a_client_that_dawdles_is_sent_away() -> None:
    """With half a request, or half a hello."""
    async with gated("a.org:443", serve=echo, caps=Caps(head_s=0.2)) as gate:
        assert (await gate.status(b"GET http://a.org"))[0] == 408
        assert await gate.ask(connect_to("a.org:443"), b"\x16\x03") == ESTABLISHED + ACCESS_DENIED
    assert [why for *_, why in gate.decisions] == [
        "the request did not come in time",
        "a.org:443 is refused: no TLS ClientHello came in time",
    ]


async def test_a_connection_where_nothing_moves_is_ended() -> None:
    """A plain request gets an answer that says so, a tunnel just ends."""

    async def silent(stream: SocketStream) -> None:
        await all_of(stream)

    async with gated("a.org:80", "a.org:443", serve=silent, caps=Caps(idle_s=0.2)) as gate:
        assert await gate.status(get("http://a.org/")) == (504, "a.org:80: nothing came for 0.2 s")
        assert await gate.ask(connect_to("a.org:443"), client_hello("a.org")) == ESTABLISHED
    assert [end.reason for end in gate.ended] == ["nothing came for 0.2 s"] * 2


async def test_a_session_has_so_many_bytes_and_no_more() -> None:
    """The connection that crosses the line ends, the next is refused with the setting."""
    async with gated("a.org:80", caps=Caps(total_bytes=100)) as gate:
        await gate.ask(get("http://a.org/" + "x" * 100))
        status, text = await gate.status(get("http://a.org/"))
    assert (status, text) == (403, "this session has used up sandbox.egress (100 bytes)")


async def test_many_clients_are_served_and_none_is_forgotten() -> None:
    """More than are carried at once: the rest wait their turn."""
    async with gated("a.org:80") as gate:
        answers: list[bytes] = []

        async def one() -> None:
            answers.append(await gate.ask(get("http://a.org/")))

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(one)
    assert len(answers) == 200
    assert all(answer.endswith(b"hello") for answer in answers)


async def test_garbage_in_any_number_leaves_the_gate_working() -> None:
    """Frames of the stream's own protocol among it: from a tool they are bytes like any other."""
    async with gated("a.org:80") as gate:
        forged = b"\0\0\0\1\x20\0\0\0\x09x" + b"\0\0\0\0\x24\0\0\0\1" * 50 + b"\n\n"

        async def one(data: bytes) -> None:
            async with await gate.client() as client:
                await client.send(data)

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, forged if number % 2 else bytes(range(256)) * 8)
        assert (await gate.ask(get("http://a.org/"))).endswith(b"hello")


async def test_what_repeats_is_told_less_and_less_often() -> None:
    """A tool cannot flood the record; the count is kept."""
    async with gated() as gate:
        for _ in range(TOLD_EACH + 50):
            await gate.ask(connect_to("b.org:443"))
        times = [one.times for one in gate.told if isinstance(one, Decided)]
    assert times == [*range(1, TOLD_EACH + 1), 32, 64]


async def test_a_server_that_is_not_there_is_told() -> None:
    """With the address that was tried."""
    async with gated("a.org:80", serve=HELLO) as gate:
        gate.world.port = 1
        status, text = await gate.status(get("http://a.org/"))
    assert status == 502
    assert text.startswith(f"a.org:80 cannot be reached: {WORLD}: ")
