"""Host names as network policy knows them: one spelling for each, and everything that could be read two ways refused.

Imported by the policy (what is listed) and by the gate (what is asked for), so that both mean the same. No I/O, and no
opinion on whether a name may be reached.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from sandbox_agent.types import JsonObject

HOST_GROUPS = ("@debian", "@node", "@python")
"""Names that stand for the hosts which the package clients of this machine are configured for."""

MAX_HOST_CHARS = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SPELT_TWO_WAYS = frozenset("\u00df\u03c2\u200c\u200d")
"""Letters for which the two standards of international names have different results."""
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#%\\\s]+):([0-9]{1,5})")


class HostnameError(ValueError):
    """The text names no host that is taken; it says why."""


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One entry of an allow-list. `host` is canonical: a name, `*.` and a name (anything below it), an address, or one
    of `HOST_GROUPS`, which has no port. `allow_private` lets the name lead to private addresses."""

    host: str
    port: int | None = None
    allow_private: bool = False

    @property
    def group(self) -> bool:
        return self.host.startswith("@")

    @property
    def text(self) -> str:
        """As it is written in a policy, without `allow_private`."""
        return self.host if self.port is None else authority(self.host, self.port)

    def as_json(self) -> JsonObject:
        """For the record; `entry_of_json` reads it."""
        return {"host": self.host, "port": self.port, "allow_private": self.allow_private}

    def covers(self, host: str, port: int) -> bool:
        """True if this entry is about a canonical host at a port."""
        if self.port != port:
            return False
        if self.host.startswith("*."):
            return not is_address(host) and host.endswith(self.host[1:])
        return self.host == host


def canonical_host(text: str) -> str:
    """A name in lower case without its final dot, or an address in its usual spelling (IPv6 without brackets).

    Raises:
        HostnameError: it is neither, or an address in a form that programs read differently (decimal, octal, hex,
            with fewer than four parts, with a zone).
    """
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if not text.isascii():
        raise HostnameError("only ASCII is taken; write the name as xn--...")
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        return _ipv4(host)
    if len(host) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise HostnameError("not a host name")
    return host


def listed_host(text: str) -> str:
    """The canonical host of an allow-list's entry, which may also begin with `*.` or have letters beyond ASCII.

    Raises:
        HostnameError: see `canonical_host`; or a `*` that stands elsewhere or for too much.
    """
    star, rest = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    if "*" in rest:
        raise HostnameError("a * may stand only at the beginning, as in *.example.org")
    if not rest.isascii():
        rest = _punycode(rest)
    host = canonical_host(rest)
    if star and (is_address(host) or "." not in host):
        raise HostnameError("*. needs a name of at least two parts behind it, as in *.example.org")
    return star + host


def is_address(host: str) -> bool:
    """True if a canonical host is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def authority(host: str, port: int) -> str:
    """`host:port`, with brackets where they are needed."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_authority(text: str) -> tuple[str, int]:
    """Host (not canonical yet, IPv6 in brackets) and port of `host:port`, and of nothing that has more to it.

    Raises:
        HostnameError: user information, a path, a missing or impossible port, white space.
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise HostnameError("not host:port")
    port = int(match[2])
    if not 1 <= port <= 65_535 or match[2].startswith("0"):
        raise HostnameError("a port is a number from 1 to 65535")
    return match[1], port


def entry_of(text: str, *, allow_private: bool = False) -> HostEntry:
    """The entry that `host:port` or `@group` stands for.

    Raises:
        HostnameError: it is neither.
    """
    if text.startswith("@"):
        if text not in HOST_GROUPS:
            raise HostnameError(f"there is no such group; known are {', '.join(HOST_GROUPS)}")
        return HostEntry(text, None, allow_private)
    host, port = split_authority(text)
    return HostEntry(listed_host(host), port, allow_private)


def entry_of_json(data: JsonObject) -> HostEntry:
    """The entry that `HostEntry.as_json` gave; a record may have been through other hands.

    Raises:
        HostnameError: it is none.
    """
    if not isinstance(data, dict):
        raise HostnameError("not an entry")
    host, port, allow_private = data.get("host"), data.get("port"), data.get("allow_private") is True
    if not isinstance(host, str) or not (port is None or type(port) is int):
        raise HostnameError("not an entry")
    if port is None:
        return entry_of(host if host.startswith("@") else "@", allow_private=allow_private)
    return entry_of(authority(host, port), allow_private=allow_private)


def _punycode(text: str) -> str:
    # The library codec is of the older standard, but costs nothing at import; the package for the newer costs 30 ms.
    if not _SPELT_TWO_WAYS.isdisjoint(text):
        raise HostnameError("this international name has two spellings; write it as xn--...")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as exc:
        raise HostnameError("not an international host name") from exc


def _ipv4(host: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError as exc:
        raise HostnameError("not a host name, nor an IPv4 address of four plain decimal numbers") from exc


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text if "%" not in text else ""))
    except ValueError as exc:
        raise HostnameError("not an IPv6 address") from exc
