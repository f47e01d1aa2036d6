"""Addresses that a name may not lead to: a table with a name for each range, the first that holds the address counts.

Not `ipaddress.is_private` and its kin: they change between Python versions, and they count ranges for documentation and
tests, which package mirrors inside a company do resolve to.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

Opening = Literal["never", "private", "literal"]
"""What opens a range: nothing; `allow_private` of the host's entry; or that, where the entry is about an address itself
(or localhost), so that nobody else's name can be pointed there."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Range:
    """One range; `name` is what refusals and the record say."""

    name: str
    network: str
    opening: Opening = "never"

    def holds(self, address: Address) -> bool:
        return address in _network(self.network)


RANGES = (
    # services that give out credentials to whoever asks from inside a cloud machine
    Range("cloud metadata", "169.254.169.254/32"),
    Range("cloud metadata", "169.254.170.0/24"),
    Range("cloud metadata", "100.100.100.200/32"),
    Range("cloud metadata", "168.63.129.16/32"),
    Range("cloud metadata", "fd00:ec2::/32"),
    Range("cloud metadata", "fd20:ce::254/128"),
    Range("unspecified", "0.0.0.0/32"),
    Range("this network", "0.0.0.0/8"),
    Range("loopback", "127.0.0.0/8", "literal"),
    Range("link-local", "169.254.0.0/16"),
    Range("private", "10.0.0.0/8", "private"),
    Range("private", "172.16.0.0/12", "private"),
    Range("private", "192.168.0.0/16", "private"),
    Range("carrier-grade NAT", "100.64.0.0/10", "private"),
    Range("IETF protocols", "192.0.0.0/24"),
    Range("multicast", "224.0.0.0/4"),
    Range("broadcast", "255.255.255.255/32"),
    Range("reserved", "240.0.0.0/4"),
    Range("unspecified", "::/128"),
    Range("loopback", "::1/128", "literal"),
    Range("IPv4-mapped", "::ffff:0:0/96"),
    Range("IPv4-translated", "::ffff:0:0:0/96"),
    Range("IPv4-compatible", "::/96"),
    Range("NAT64", "64:ff9b::/96", "private"),
    Range("NAT64", "64:ff9b:1::/48", "private"),
    Range("discard", "100::/64"),
    Range("Teredo", "2001::/32"),
    Range("6to4", "2002::/16"),
    Range("unique-local", "fc00::/7", "private"),
    Range("link-local", "fe80::/10"),
    Range("site-local", "fec0::/10"),
    Range("multicast", "ff00::/8"),
)

OWN_MACHINE = Range("this machine", "", "private")
"""An address that the engine's machine itself has; found by asking the kernel, not by a network."""

UNREADABLE = Range("not an address", "")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_NOWHERE = ipaddress.IPv4Network("0.0.0.0/8")


def range_of(text: str) -> Range | None:
    """The range that an address is in, None if it is in none of them.

    An IPv6 address that stands for an IPv4 one by NAT64 is in that one's range where that is a stricter one; where its
    network may write the other one in several places, in the strictest of what is there.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return UNREADABLE
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return UNREADABLE
    found = next((one for one in RANGES if one.holds(address)), None)
    inner = [range_of(str(one)) for one in _embedded(address)] if isinstance(address, ipaddress.IPv6Address) else []
    stricter = [one for one in inner if one is not None and one.opening != "private"]
    return min(stricter, key=lambda one: one.opening != "never", default=found)


def _embedded(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that one may stand for by NAT64. In 64:ff9b:1::/48 a network chooses the length of its prefix
    (RFC 6052: 48, 56, 64 or 96 bits, with eight bits of zeros after the first 64), so each place is looked at; zeros in
    the others mean nothing."""
    bits = int(address)
    low = ipaddress.IPv4Address(bits & 0xFFFFFFFF)
    if address in _NAT64:
        return [low]
    if address not in _NAT64_LOCAL:
        return []
    by_48 = (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF
    by_56 = (bits >> 64 & 0xFF) << 24 | bits >> 32 & 0xFFFFFF
    by_64 = bits >> 24 & 0xFFFFFFFF
    places = [low, *map(ipaddress.IPv4Address, (by_48, by_56, by_64))]
    return [place for place in places if place not in _NOWHERE] or [low]


def opens(opening: Opening, *, allow_private: bool, literal: bool) -> bool:
    """True if an entry opens ranges of this kind."""
    return opening != "never" and allow_private and (literal or opening == "private")


def _network(text: str) -> Network:
    return ipaddress.ip_network(text)
