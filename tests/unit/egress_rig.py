"""The gate without a container: the real forwarder as a process of this machine, the real proxy, and servers of our own
that stand for the world. Addresses are as a resolver of the test says; connecting to one is recorded."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import ByteStream, Process, SocketAttribute, SocketStream

from sandbox_agent.hostnames import HostEntry, entry_of
from sandbox_agent.sandboxes.egress.dial import Dialler, Route
from sandbox_agent.sandboxes.egress.gate import Gate
from sandbox_agent.sandboxes.egress.ledger import Decided, Ended, Ledger, Told
from sandbox_agent.sandboxes.egress.proxy import Caps, Proxy
from sandbox_agent.sandboxes.egress.tunnel import Tunnel
from sandbox_agent.sandboxes.program import command

PATIENCE_S = 20
WORLD = "198.51.100.7"
"""What names resolve to unless a test says otherwise."""

Handler = Callable[[SocketStream], Awaitable[None]]


class PipeChannel:
    """A `Channel` to a process of this machine."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise BrokenPipeError from exc

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        try:
            return await self.process.stdout.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return b""

    async def aclose(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        await self.process.wait()
        await self.process.aclose()

    def diagnostics(self) -> str:
        return ""


@dataclass
class World:
    """What is outside. `dialled` is what was connected to; the server at `port` is all of them."""

    addresses: dict[str, Sequence[str]] = field(default_factory=dict)
    answers: list[Sequence[str]] = field(default_factory=list)
    """What the resolver says first, one after the other."""
    resolved: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        return self.answers.pop(0) if self.answers else self.addresses.get(host, [WORLD])

    async def connect(self, address: str, port: int) -> ByteStream:
        self.dialled.append((address, port))
        return await anyio.connect_tcp("127.0.0.1", self.port)


@dataclass
class Gated:
    """A gate in force. `told` is everything it said."""

    world: World
    gate: Gate
    port: int
    told: list[Told]
    channel: PipeChannel

    @property
    def decisions(self) -> list[tuple[str, bool, str]]:
        """Host and port, whether it passed, and why."""
        found = [one for one in self.told if isinstance(one, Decided)]
        return [("" if one.asked is None else one.asked.text, one.allowed, one.reason) for one in found]

    @property
    def ended(self) -> list[Ended]:
        return [one for one in self.told if isinstance(one, Ended)]

    async def client(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def ask(self, *pieces: bytes, close: bool = False) -> bytes:
        """What comes back for these bytes, until the end."""
        with anyio.fail_after(PATIENCE_S):
            async with await self.client() as client:
                for piece in pieces:
                    await client.send(piece)
                if close:
                    await client.send_eof()
                return await all_of(client)

    async def status(self, *pieces: bytes) -> tuple[int, str]:
        """Status and text of the answer."""
        head, _, body = (await self.ask(*pieces)).partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode().removeprefix("sandbox-agent: ").rstrip("\n")


async def all_of(stream: ByteStream) -> bytes:
    """Everything until the end."""
    data = bytearray()
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return bytes(data)


def answering(answer: bytes) -> Handler:
    """A server that reads one request's head and answers so."""

    async def serve(stream: SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        await stream.send(answer)

    return serve


HELLO = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


@asynccontextmanager
async def gated(
    *entries: str | HostEntry,
    serve: Handler = HELLO,
    caps: Caps | None = None,
    own: Sequence[str] = (),
    routes: dict[str, Route] | None = None,
    bypassed: Callable[[str, int], bool] = lambda host, port: False,
) -> AsyncIterator[Gated]:
    """A gate with these entries; `serve` is every server of the world."""
    world = World()
    gate = Gate([entry_of(one) if isinstance(one, str) else one for one in entries], is_own=lambda one: one in own)
    told: list[Told] = []
    dialler = Dialler(gate, routes, bypassed=bypassed, resolve=world.resolve, connect=world.connect)
    proxy = Proxy(gate, dialler, Ledger(told.append), caps)
    channel = PipeChannel(await anyio.open_process(command(sys.executable), stderr=None))
    tunnel = Tunnel(channel)
    port = free_port()
    async with anyio.create_task_group() as group:
        try:
            async with served(serve) as world.port:
                await tunnel.open(port, {})
                group.start_soon(tunnel.run, proxy.serve)
                yield Gated(world, gate, port, told, channel)
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await tunnel.aclose()


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """A server at a port of this machine's loopback; each connection is closed when the handler is done with it."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await handler(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield int(listener.extra(SocketAttribute.local_port))
        group.cancel_scope.cancel()


def free_port() -> int:
    """A port of this machine's loopback that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def client_hello(host: str | None) -> bytes:
    """The first record of a TLS client of this Python."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def connect_to(where: str, version: str = "1.1") -> bytes:
    """A CONNECT request."""
    return f"CONNECT {where} HTTP/{version}\r\nHost: {where}\r\n\r\n".encode()


def get(url: str, *headers: str, host: str | None = None) -> bytes:
    """A plain request to a proxy."""
    named = url.split("/")[2] if host is None else host
    return "\r\n".join([f"GET {url} HTTP/1.1", f"Host: {named}", *headers, "", ""]).encode()
