"""The machine's own proxy, where it has one, and failures on the way out."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest
from anyio.abc import SocketStream
from egress_rig import client_hello, connect_to, gated, get, served

from sandbox_agent.errors import ConfigError
from sandbox_agent.hostnames import entry_of
from sandbox_agent.sandboxes.egress import dial
from sandbox_agent.sandboxes.egress.dial import BEYOND, Dialler, Route, routes_of
from sandbox_agent.sandboxes.egress.gate import Asked, Gate, Refusal


def here(port: int, authorization: bytes | None) -> Route:
    """A proxy on this machine."""
    return Route("127.0.0.1", port, False, authorization)


def test_the_machine_s_proxies_are_read_as_curl_reads_them() -> None:
    """Both cases, lower first; without a scheme it is http; credentials are kept apart."""
    routes, bypassed = routes_of(
        {
            "HTTPS_PROXY": "http://no.example:1",
            "https_proxy": "http://me:p%40ss@proxy.example:3128/",
            "http_proxy": "proxy.example",
            "NO_PROXY": "internal.example, .corp.example,10.0.0.1:8080",
        }
    )
    token = b"Basic " + base64.b64encode(b"me:p@ss")
    assert routes == {
        "https": Route("proxy.example", 3128, False, token),
        "http": Route("proxy.example", 80, False, None),
    }
    assert bypassed("internal.example", 443)
    assert bypassed("x.corp.example", 443)
    assert bypassed("10.0.0.1", 8080)
    assert not bypassed("10.0.0.1", 80)
    assert not bypassed("other.example", 443)
    assert routes_of({})[0] == {}
    assert routes_of({"no_proxy": "*"})[1]("a.org", 1)


@pytest.mark.parametrize("value", ["socks5://x:1", "http://", "http://x:port"])
def test_a_proxy_that_cannot_be_gone_through_stops_the_run(value: str) -> None:
    """Going past it would not be what the person set up; its credentials are not repeated."""
    with pytest.raises(ConfigError, match="https_proxy is no http:// or https:// proxy") as caught:
        routes_of({"https_proxy": value.replace("://", "://user:s3cret@")})
    assert "s3cret" not in str(caught.value)


async def test_a_tunnel_goes_through_the_machine_s_proxy() -> None:
    """By name, with its credentials, and nothing is resolved here; the TLS name is still looked at."""
    seen: list[bytes] = []

    async def proxy(stream: SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        seen.append(head)
        await stream.send(b"HTTP/1.1 200 ok\r\nX: y\r\n\r\n")
        async for data in stream:
            await stream.send(data)

    async with served(proxy) as port, gated("a.org:443", routes={"https": here(port, b"Basic abc")}) as gate:
        hello = client_hello("a.org")
        answer = await gate.ask(connect_to("a.org:443"), hello, close=True)
        refused = await gate.ask(connect_to("a.org:443"), client_hello("b.org"))

    assert answer.endswith(hello)
    assert hello not in refused
    assert seen[0] == b"CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\nProxy-Authorization: Basic abc\r\n\r\n"
    assert (gate.world.resolved, gate.world.dialled) == ([], [])
    assert [one.address for one in gate.told if getattr(one, "allowed", False)] == [BEYOND]  # type: ignore[union-attr]


async def test_a_plain_request_goes_through_with_its_whole_address() -> None:
    """And with credentials that the tool never sees."""
    seen: list[bytes] = []

    async def proxy(stream: SocketStream) -> None:
        seen.append(await stream.receive())
        await stream.send(b"HTTP/1.1 200 ok\r\nContent-Length: 0\r\n\r\n")

    async with served(proxy) as port, gated("a.org:80", routes={"http": here(port, b"Basic abc")}) as gate:
        answer = await gate.ask(get("http://a.org/x"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert seen == [
        b"GET http://a.org/x HTTP/1.1\r\nHost: a.org\r\nProxy-Authorization: Basic abc\r\nConnection: close\r\n\r\n"
    ]


async def test_a_proxy_that_says_no_or_nothing_is_told() -> None:
    """Without a word of its own in our answer."""

    async def proxy(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 407 give me a password\r\n\r\n")

    async with served(proxy) as port, gated("a.org:443", routes={"https": here(port, None)}) as gate:
        said = await gate.status(connect_to("a.org:443"))
    assert said == (502, "a.org:443 is refused by the machine's own proxy (status 407)")
    async with gated("a.org:443", routes={"https": Route("127.0.0.1", 1, False, None)}) as gate:
        assert await gate.status(connect_to("a.org:443")) == (502, "a.org:443: the machine's own proxy does not answer")


async def test_an_address_is_judged_before_a_proxy_is_asked_for_it() -> None:
    """Only names are left to it."""
    async with gated("169.254.169.254:80", routes={"http": Route("127.0.0.1", 1, False, None)}) as gate:
        status, text = await gate.status(get("http://169.254.169.254/"))
    assert (status, text) == (403, "169.254.169.254:80 leads to 169.254.169.254 (cloud metadata)")


async def test_a_name_that_does_not_resolve_is_told() -> None:
    """As the resolver says it."""

    async def missing(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    entry = entry_of("a.org:443")
    found = await Dialler(Gate([entry]), resolve=missing).dial(Asked("a.org", 443), entry, tunnel=True)
    assert found == Refusal("a.org:443 cannot be resolved: Name or service not known", 502)


def test_the_machine_knows_its_own_addresses() -> None:
    """Loopback is one, an address for documentation is not."""
    assert dial.is_own("127.0.0.1")
    assert not dial.is_own("198.51.100.7")
