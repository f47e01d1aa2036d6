"""What tools asked of the network: every decision of the gate, and how much went over what it let pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressDecided(Event):
    """The gate let a connection pass, or refused it. `verdict` is "allow" or "deny".

    `host` and `port` are what was asked for, "" and 0 where it was no request. `protocol` is "connect" (TLS) or "http".
    `address` is what was connected to, `address_range` the name of the range that an address was refused for.
    `unlisted` says that it was refused for want of an entry in `sandbox.allow_hosts`.
    `call_ids` are the calls that ran at that moment. `times` counts how often it was decided so in this run: what
    repeats often is told at each doubling only.
    """

    type: ClassVar[str] = "egress_decided"
    host: str
    port: int
    verdict: str
    reason: str
    protocol: str = ""
    address: str | None = None
    address_range: str | None = None
    unlisted: bool = False
    call_ids: tuple[str, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressEnded(Event):
    """A connection that the gate let pass is over; `reason` says why, None where both sides were done.

    The totals are of all connections to that host and port in this run so far.
    """

    type: ClassVar[str] = "egress_ended"
    host: str
    port: int
    sent_bytes: int
    received_bytes: int
    duration_s: float
    total_sent_bytes: int
    total_received_bytes: int
    reason: str | None = None
