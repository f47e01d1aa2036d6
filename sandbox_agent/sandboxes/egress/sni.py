"""The name in a TLS ClientHello, which must be the host that was asked for.

Everything that could show one name to us and another to the server is refused: what is not TLS, a hello spread over
records, a second name, an encrypted one.
"""

from __future__ import annotations

from sandbox_agent.hostnames import HostnameError, canonical_host, is_address

MAX_RECORD_BYTES = 16 * 1024
_SHOWN_CHARS = 100
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _HOST_NAME = 0, 0
_ENCRYPTED = {0xFE0D: "encrypted_client_hello", 0xFFCE: "encrypted_server_name"}

ACCESS_DENIED = bytes.fromhex("15030300020231")
"""The fatal alert access_denied: a TLS client says so instead of "connection closed"."""


class HelloError(Exception):
    """The first bytes are not a hello that is passed on; the text says why."""


class _Reader:
    """Fields of a structure, never beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def left(self) -> bool:
        return bool(self._data)

    def take(self, size: int) -> bytes:
        if len(self._data) < size:
            raise HelloError("the ClientHello is malformed")
        found, self._data = self._data[:size], self._data[size:]
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def vector(self, size_of_length: int) -> _Reader:
        return _Reader(self.take(self.number(size_of_length)))


def record_bytes(data: bytes) -> int | None:
    """How many bytes the first record has with its header; None while that is not known.

    Raises:
        HelloError: it is no TLS handshake.
    """
    if (data[:1] and data[0] != _HANDSHAKE) or (data[1:2] and data[1] != 3):
        raise HelloError("what was sent is not TLS; a tunnel carries nothing else")
    if len(data) < 5:
        return None
    size = int.from_bytes(data[3:5])
    if not 4 < size <= MAX_RECORD_BYTES:
        raise HelloError("the ClientHello is malformed")
    return 5 + size


def check_hello(record: bytes, host: str) -> None:
    """Refuse a ClientHello that is for another host than a canonical one.

    Args:
        record: the first record, whole.
        host: what was asked for. An address has no name: then there must be none.

    Raises:
        HelloError: it is, or could be.
    """
    names = _names(record)
    if is_address(host):
        if names:
            raise HelloError(f"the TLS name is {_shown(names[:1])}, but the address {host} was asked for")
        return
    if not names:
        raise HelloError("the TLS ClientHello names no host (no SNI)")
    try:
        named = canonical_host(names[0])
    except HostnameError:
        named = None
    if len(names) > 1 or named != host:
        raise HelloError(f"the TLS name is {_shown(names[:3])}, but {host} was asked for")


def _shown(names: list[str]) -> str:
    """A hello has room for names of 16 KiB, and what is refused is recorded."""
    return ", ".join(repr(name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}...") for name in names)


def _names(record: bytes) -> list[str]:
    """The host names of the hello; an error for whatever hides one."""
    handshake = _Reader(record[5:])
    if handshake.number(1) != _CLIENT_HELLO:
        raise HelloError("the first TLS message is not a ClientHello")
    size = handshake.number(3)
    if size > len(record) - 9:
        raise HelloError("the ClientHello is spread over several TLS records")
    hello = _Reader(handshake.take(size))
    if handshake.left:
        raise HelloError("there is more in the first TLS record than a ClientHello")
    hello.take(2 + 32)
    hello.vector(1)
    hello.vector(2)
    hello.vector(1)
    names: list[str] = []
    extensions = hello.vector(2) if hello.left else _Reader(b"")
    seen: set[int] = set()
    while extensions.left:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind in _ENCRYPTED:
            raise HelloError(f"the TLS name is encrypted ({_ENCRYPTED[kind]})")
        if kind in seen:
            raise HelloError("the ClientHello is malformed")
        seen.add(kind)
        if kind == _SERVER_NAME:
            entries = body.vector(2)
            while entries.left:
                if entries.number(1) != _HOST_NAME:
                    raise HelloError("the ClientHello is malformed")
                names.append(entries.vector(2).rest().decode("ascii", "replace"))
    return names
