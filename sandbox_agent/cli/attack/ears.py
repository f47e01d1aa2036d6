"""Sockets on the machine that must hear nothing: TCP, UDP and an abstract unix socket. No thread: the kernel keeps what
comes until somebody looks."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_SIOCGIFADDR = 0x8915
_BRIDGES = ("docker", "podman", "br-")


class Ears:
    """`port` is where they listen: on loopback, and on the bridges of container engines, which containers can reach."""

    def __init__(self, port: int, streams: dict[str, socket.socket], datagrams: dict[str, socket.socket]) -> None:
        self.port = port
        self._streams = streams
        self._datagrams = datagrams

    @property
    def places(self) -> list[str]:
        """Where they listen, for people."""
        return [*self._streams, *(name for name in self._datagrams if name not in self._streams)]

    def heard(self) -> list[str]:
        """Who came since the last time that was asked, one line each."""
        found: list[str] = []
        for name, server in self._streams.items():
            try:
                while True:
                    server.accept()[0].close()
                    found.append(f"a connection to {name}")
            except BlockingIOError:
                continue
        for name, channel in self._datagrams.items():
            try:
                while True:
                    channel.recv(65536)
                    found.append(f"a datagram to {name}")
            except BlockingIOError:
                continue
        return found


@contextmanager
def listening() -> Iterator[Ears]:
    """Open them all on one free port."""
    with ExitStack() as stack:
        first = _bound(stack, socket.SOCK_STREAM, ("127.0.0.1", 0))
        port = int(first.getsockname()[1])
        streams, datagrams = {f"127.0.0.1:{port}": first}, {}
        datagrams[f"127.0.0.1:{port}/udp"] = _bound(stack, socket.SOCK_DGRAM, ("127.0.0.1", port))
        for address in _bridge_addresses():
            try:
                stream = _bound(stack, socket.SOCK_STREAM, (address, port))
                datagram = _bound(stack, socket.SOCK_DGRAM, (address, port))
            except OSError:  # the port is somebody's there, or the bridge has just gone
                continue
            streams[f"{address}:{port}"], datagrams[f"{address}:{port}/udp"] = stream, datagram
        name = f"sandbox-agent-attack-{port}"
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind(f"\0{name}")
        abstract.listen()
        abstract.setblocking(False)
        streams[f"the abstract socket {name}"] = abstract
        yield Ears(port, streams, datagrams)


def _bound(stack: ExitStack, kind: socket.SocketKind, address: tuple[str, int]) -> socket.socket:
    channel = stack.enter_context(socket.socket(socket.AF_INET, kind))
    channel.bind(address)
    if kind is socket.SOCK_STREAM:
        channel.listen()
    channel.setblocking(False)
    return channel


def _bridge_addresses() -> list[str]:
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for _, name in socket.if_nameindex():
            if not name.startswith(_BRIDGES):
                continue
            try:
                answer = fcntl.ioctl(channel, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an IPv4 address
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return found
