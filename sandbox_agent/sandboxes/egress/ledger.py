"""Who asked for which host, what was said, and how much went: told as it happens, and summed up.

What tools ask for is theirs to choose, names and number: so what is told is bounded, and repeated decisions are told
less and less often, each time with how many there were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sandbox_agent.sandboxes.egress.gate import Asked, Refusal

Protocol = Literal["connect", "http", ""]

MAX_KINDS = 2_000
"""Different decisions (host, port, reason); what comes beyond is told as one."""

TOLD_EACH = 200
"""So often a decision is told every time; then at each doubling."""

BEYOND_KINDS = Asked("(further hosts)", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision. `asked` is None for what was no request. `times` counts how often it was made so far."""

    asked: Asked | None
    allowed: bool
    reason: str
    protocol: Protocol = ""
    address: str | None = None
    address_range: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A connection that was allowed is over. The sums are of all connections to that host and port so far."""

    asked: Asked
    sent_bytes: int
    received_bytes: int
    duration_s: float
    total_sent_bytes: int
    total_received_bytes: int
    reason: str | None = None


Told = Decided | Ended


@dataclass(slots=True)
class _Sums:
    sent_bytes: int = 0
    received_bytes: int = 0
    ended: int = 0


class Ledger:
    """The sums of one session."""

    def __init__(self, tell: Callable[[Told], None]) -> None:
        self._tell = tell
        self._times: dict[tuple[Asked | None, bool, str], int] = {}
        self._sums: dict[Asked, _Sums] = {}
        self.total_bytes = 0

    def refused(self, asked: Asked | None, refusal: Refusal) -> None:
        """Something was refused."""
        asked, times = self._counted(asked, False, refusal.reason)
        if _is_told(times):
            self._tell(
                Decided(
                    asked=asked,
                    allowed=False,
                    reason=refusal.reason if asked is not BEYOND_KINDS else "refused",
                    address_range=refusal.address_range,
                    times=times,
                )
            )

    def allowed(self, asked: Asked, protocol: Protocol, address: str) -> Passing:
        """Something is let pass; what passes is counted by what is returned."""
        _, times = self._counted(asked, True, protocol)
        if _is_told(times):
            self._tell(
                Decided(asked=asked, allowed=True, reason="listed", protocol=protocol, address=address, times=times)
            )
        return Passing(self, asked)

    def _counted(self, asked: Asked | None, allowed: bool, reason: str) -> tuple[Asked | None, int]:
        key = (asked, allowed, reason)
        if key not in self._times and len(self._times) >= MAX_KINDS:
            key = (BEYOND_KINDS, allowed, "")
        self._times[key] = self._times.get(key, 0) + 1
        return key[0], self._times[key]

    def ended(self, passing: Passing) -> None:
        """A connection is over."""
        sums = self._sums.setdefault(passing.asked, _Sums())
        sums.sent_bytes += passing.sent_bytes
        sums.received_bytes += passing.received_bytes
        sums.ended += 1
        if _is_told(sums.ended):
            self._tell(
                Ended(
                    asked=passing.asked,
                    sent_bytes=passing.sent_bytes,
                    received_bytes=passing.received_bytes,
                    duration_s=time.monotonic() - passing.started_s,
                    total_sent_bytes=sums.sent_bytes,
                    total_received_bytes=sums.received_bytes,
                    reason=passing.reason,
                )
            )


@dataclass(slots=True)
class Passing:
    """One connection that was let pass. `reason` says why it ended, None where both sides were done."""

    ledger: Ledger
    asked: Asked
    sent_bytes: int = 0
    received_bytes: int = 0
    reason: str | None = None
    started_s: float = field(default_factory=time.monotonic)

    def sent(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes
        self.ledger.total_bytes += size_bytes

    def received(self, size_bytes: int) -> None:
        self.received_bytes += size_bytes
        self.ledger.total_bytes += size_bytes

    def end(self) -> None:
        """It is over."""
        self.ledger.ended(self)


def _is_told(times: int) -> bool:
    return times <= TOLD_EACH or times & (times - 1) == 0
