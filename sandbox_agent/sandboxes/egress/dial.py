"""Out of the machine: a name is resolved once, the addresses are judged, and one of those is connected to.

Where the person's environment names a proxy for other hosts, connections go through that. It resolves names itself,
out of our sight: then no address is judged, only what was asked for and the TLS name.
"""

from __future__ import annotations

import base64
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import ByteStream

from sandbox_agent.errors import ConfigError
from sandbox_agent.hostnames import HostEntry, authority, is_address
from sandbox_agent.sandboxes.egress.gate import Asked, Gate, Passed, Refusal

CONNECT_S = 10.0
"""For resolving, and again for each address, and for a further proxy's answer."""

BEYOND = "left to the machine's own proxy"
"""In place of an address range: who resolves the name, and does not tell us."""

_MAX_ANSWER_BYTES = 64 * 1024

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Addresses of a host. Raises OSError."""

Connect = Callable[[str, int], Awaitable[ByteStream]]
"""A connection to an address. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Route:
    """The machine's own proxy for some scheme. Its credentials are shown to nobody."""

    host: str
    port: int
    tls: bool
    authorization: bytes | None

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return () if self.authorization is None else ((b"Proxy-Authorization", self.authorization),)


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connection, where it leads, and the proxy in between, None for none."""

    stream: ByteStream
    address: str
    route: Route | None = None


async def resolve(host: str, port: int) -> Sequence[str]:
    """By the machine's resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(one[4][0]) for one in found)]


async def connect(address: str, port: int) -> ByteStream:
    """Straight there; an address is not looked up again."""
    return await anyio.connect_tcp(address, port)


def is_own(address: str) -> bool:
    """True if an address is one of this machine: the kernel would talk to it from that very address. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
        except OSError:
            return False  # no way leads there


class Dialler:
    """Makes the connections of one session."""

    def __init__(
        self,
        gate: Gate,
        routes: Mapping[str, Route] | None = None,
        *,
        bypassed: Callable[[str, int], bool] = lambda host, port: False,
        resolve: Resolve = resolve,
        connect: Connect = connect,
    ) -> None:
        """`routes` has the machine's proxies by scheme, `bypassed` says what is reached without them."""
        self._gate = gate
        self._routes = routes or {}
        self._bypassed = bypassed
        self._resolve = resolve
        self._connect = connect

    async def dial(self, asked: Asked, entry: HostEntry, *, tunnel: bool) -> Dialled | Refusal:
        """A connection for what the gate lets pass. `tunnel` is False for plain HTTP, which a proxy takes as it is."""
        route = self._routes.get("https" if tunnel else "http")
        if route is not None and not self._bypassed(asked.host, asked.port):
            return await self._through(route, asked, entry, tunnel=tunnel)
        found = await self._addresses(asked)
        judged = found if isinstance(found, Refusal) else self._gate.judge(asked, entry, found)
        if isinstance(judged, Refusal):
            return judged
        return await self._first_of(asked, judged)

    async def _addresses(self, asked: Asked) -> Sequence[str] | Refusal:
        if is_address(asked.host):
            return [asked.host]
        try:
            with anyio.fail_after(CONNECT_S):
                return await self._resolve(asked.host, asked.port)
        except TimeoutError:
            return Refusal(f"{asked.text} was not resolved within {CONNECT_S:g} s", 504)
        except OSError as exc:
            return Refusal(f"{asked.text} cannot be resolved: {exc.strerror or exc}", 502)

    async def _first_of(self, asked: Asked, passed: Passed) -> Dialled | Refusal:
        reason = "no address answers"
        for address in passed.addresses:
            try:
                with anyio.fail_after(CONNECT_S):
                    return Dialled(await self._connect(address, asked.port), address)
            except TimeoutError:
                reason = f"{address} does not answer within {CONNECT_S:g} s"
            except OSError as exc:
                reason = f"{address}: {exc.strerror or exc}"
        return Refusal(f"{asked.text} cannot be reached: {reason}", 502)

    async def _through(self, route: Route, asked: Asked, entry: HostEntry, *, tunnel: bool) -> Dialled | Refusal:
        if is_address(asked.host):
            judged = self._gate.judge(asked, entry, [asked.host])
            if isinstance(judged, Refusal):
                return judged
        stream = None
        try:
            with anyio.fail_after(2 * CONNECT_S):
                stream = await self._to_proxy(route)
                status = await _tunnelled(stream, route, asked) if tunnel else 200
                if status == 200:
                    dialled, stream = Dialled(stream, BEYOND, route), None
                    return dialled
            return Refusal(f"{asked.text} is refused by the machine's own proxy (status {status})", 502)
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            return Refusal(f"{asked.text}: the machine's own proxy does not answer", 502)
        finally:
            if stream is not None:
                await anyio.aclose_forcefully(stream)

    async def _to_proxy(self, route: Route) -> ByteStream:
        if route.tls:
            return await anyio.connect_tcp(route.host, route.port, tls=True, tls_standard_compatible=False)
        return await anyio.connect_tcp(route.host, route.port)


async def _tunnelled(stream: ByteStream, route: Route, asked: Asked) -> int:
    """Have a proxy connect; its status. What follows its head belongs to the tunnel, and no proxy says it unasked."""
    where = asked.text.encode("ascii")
    lines = [b"CONNECT %b HTTP/1.1" % where, b"Host: %b" % where, *(b"%b: %b" % pair for pair in route.headers())]
    await stream.send(b"\r\n".join(lines) + b"\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        if len(head) > _MAX_ANSWER_BYTES:
            raise anyio.EndOfStream
        head += await stream.receive(1)
    words = head.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def routes_of(environ: Mapping[str, str]) -> tuple[dict[str, Route], Callable[[str, int], bool]]:
    """The machine's proxies by scheme, and what is reached without them, as curl and pip read them.

    Raises:
        ConfigError: a proxy is of a kind that is not supported: going past it would be worse than stopping.
    """
    found = {name.lower(): value for name, value in environ.items()}
    found |= {name: value for name, value in environ.items() if name.islower()}
    routes = {}
    for scheme in ("http", "https"):
        value = found.get(f"{scheme}_proxy") or found.get("all_proxy")
        if value:
            routes[scheme] = _route(f"{scheme}_proxy", value)
    without = [one.strip().lower().lstrip(".") for one in found.get("no_proxy", "").split(",") if one.strip()]

    def bypassed(host: str, port: int) -> bool:
        places = (host, authority(host, port))
        return "*" in without or any(place == one or place.endswith(f".{one}") for place in places for one in without)

    return routes, bypassed


def _route(variable: str, value: str) -> Route:
    parts = urllib.parse.urlsplit(value if "://" in value else f"http://{value}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ConfigError(
            f"{variable} is no http:// or https:// proxy, which is all that sandbox.allow_hosts can go through"
        )
    authorization = None
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = b"Basic " + base64.b64encode(pair.encode())
    default = 443 if parts.scheme == "https" else 80
    return Route(parts.hostname, port or default, parts.scheme == "https", authorization)
