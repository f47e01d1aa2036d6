"""The rules: which host and port may be asked for, and which of a name's addresses may be connected to.

There is one gate for everything that leaves the container, whatever the protocol. Nothing listed is nothing allowed.
The list is that of the session's start: nothing that is read later can widen it, or go wrong. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sandbox_agent.hostnames import HostEntry, HostnameError, authority, canonical_host, is_address
from sandbox_agent.sandboxes.egress.ranges import OWN_MACHINE, Range, opens, range_of

SETTING = "sandbox.allow_hosts"
_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for. `host` is canonical where it could be read, else what came, cut."""

    host: str
    port: int

    @property
    def text(self) -> str:
        return authority(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A no. `status` is that of the HTTP answer, `reason` is for whoever asked, `address_range` names the range that an
    address is in. `unlisted` says that nothing but an entry for the host was missing."""

    reason: str
    status: int = 403
    address_range: str | None = None
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """Addresses that may be connected to, in the order they were resolved in."""

    addresses: tuple[str, ...]


class Gate:
    """An allow-list in force."""

    def __init__(self, entries: Iterable[HostEntry] = (), *, is_own: Callable[[str], bool] = lambda _: False) -> None:
        """`is_own` says whether an address is one of the engine's machine."""
        self._entries = tuple(entries)
        self._is_own = is_own

    @property
    def entries(self) -> tuple[HostEntry, ...]:
        return self._entries

    def entry(self, host: str, port: int) -> HostEntry | None:
        """The entry for a canonical host; the one that names it before a wildcard, the widest of equals."""
        found = [one for one in self._entries if one.covers(host, port)]
        exact = [one for one in found if one.host == host]
        return max(exact or found, key=lambda one: one.allow_private, default=None)

    def ask(self, host: str, port: int) -> tuple[Asked, HostEntry | Refusal]:
        """Whether a host, as it was written in a request, may be reached at a port: before anything is resolved."""
        try:
            asked = Asked(canonical_host(host), port)
        except HostnameError as exc:
            return Asked(host[:_SHOWN_CHARS], port), Refusal(f"the host is {exc}", 400)
        entry = self.entry(asked.host, port)
        if entry is not None:
            return asked, entry
        return asked, Refusal(f"{asked.text} is not in {SETTING}", unlisted=True)

    def judge(self, asked: Asked, entry: HostEntry, addresses: Sequence[str]) -> Passed | Refusal:
        """Which of a name's addresses may be connected to; a refusal where none may."""
        literal = is_address(entry.host) or entry.host == "localhost"
        passed, barred = [], None
        for address in addresses:
            found = self._barred(address, entry, literal=literal)
            if found is None:
                passed.append(address)
            else:
                barred = barred or (address, found)
        if passed:
            return Passed(tuple(passed))
        if barred is None:
            return Refusal(f"{asked.text} has no address", 502)
        address, found = barred
        where = f"{asked.text} leads to {address} ({found.name})"
        if opens(found.opening, allow_private=True, literal=literal):
            where += f"; allow_private: true at its entry in {SETTING} permits that"
        return Refusal(where, 403, found.name)

    def _barred(self, address: str, entry: HostEntry, *, literal: bool) -> Range | None:
        found = range_of(address)
        if found is None and self._is_own(address):
            found = OWN_MACHINE
        if found is None or opens(found.opening, allow_private=entry.allow_private, literal=literal):
            return None
        return found
