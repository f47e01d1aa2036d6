"""A URL as WebFetch takes it: one reading, nothing in it that could mean another host, no way around the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from sandbox_agent.hostnames import HostnameError, authority, listed_host

MAX_CHARS = 4000
_PORTS = {"http": 80, "https": 443}
_PATH_CHARS = "!#$%&'()*+,/:;=?@[]~"


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is canonical, `port` the one that is meant where none is written; `target` is path and query, in ASCII."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def url(self) -> str:
        """The whole, without a port that goes without saying."""
        where = authority(self.host, self.port)
        return f"{self.scheme}://{where.removesuffix(f':{_PORTS[self.scheme]}')}{self.target}"

    def upgraded(self, opens: Callable[[str, int], bool]) -> Address:
        """Plain HTTP at its own port as HTTPS, unless only the plain port is open."""
        if self.scheme != "http" or self.port != _PORTS["http"]:
            return self
        if opens(self.host, self.port) and not opens(self.host, _PORTS["https"]):
            return self
        return Address("https", self.host, _PORTS["https"], self.target)


def parse_address(text: str) -> Address:
    """The address that a URL names; a fragment is left out.

    Raises:
        ValueError: it is none that is fetched; the text says what one is.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"a URL of at most {MAX_CHARS:,} characters")
    if any(char <= " " or char in '\\"<>\x7f' for char in text):
        raise ValueError("a URL without white space, control characters, backslashes, quotes and angle brackets")
    scheme, colon, _ = text.partition(":")
    if not colon or scheme.lower() not in _PORTS:
        raise ValueError("a URL that begins with https:// or http://; nothing else is fetched")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as exc:
        raise ValueError(f"a URL with a host and a port from 1 to 65535 ({exc})") from exc
    if "@" in parts.netloc:
        raise ValueError("a URL without user name and password")
    host = _host(parts.netloc, parts.hostname)
    if port == 0:
        raise ValueError("a URL with a port from 1 to 65535")
    target = quote(parts.path or "/", safe=_PATH_CHARS) + (
        f"?{quote(parts.query, safe=_PATH_CHARS)}" if parts.query else ""
    )
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], target)


def _host(netloc: str, hostname: str | None) -> str:
    """The canonical host.

    Raises:
        ValueError: there is none, or its spelling could be read in two ways.
    """
    if not hostname or "*" in hostname:
        raise ValueError("a URL with a host, as in https://example.org/page")
    try:
        return listed_host(f"[{hostname}]" if netloc.startswith("[") else hostname)
    except HostnameError as exc:
        raise ValueError(f"a URL whose host has one reading ({exc})") from exc
