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

MAX_KINDS = 1_000
"""Different decisions (host, port, reason), and hosts in sums; what comes beyond is told as one."""

TOLD_EACH = 20
"""So often a decision is told every time; then at each doubling, and the last at the end."""

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
    unlisted: bool = False
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
_Kind = tuple[Asked | None, bool, str]


@dataclass(slots=True)
class _Sums:
    sent_bytes: int = 0
    received_bytes: int = 0
    ended: int = 0


class Ledger:
    """The sums of one session."""

    def __init__(self, tell: Callable[[Told], None]) -> None:
        self._tell = tell
        self._times: dict[_Kind, int] = {}
        self._sums: dict[Asked, _Sums] = {}
        self._untold: dict[object, Told] = {}
        self.total_sent_bytes = 0
        self.total_received_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Both directions together."""
        return self.total_sent_bytes + self.total_received_bytes

    def flush(self) -> None:
        """Tell the last of what was not told for being told often enough: it has the sums."""
        waiting, self._untold = [*self._untold.values()], {}
        for told in waiting:
            self._tell(told)

    def _tell_now_and_then(self, key: object, times: int, told: Told) -> None:
        if times <= TOLD_EACH or times & (times - 1) == 0:
            self._untold.pop(key, None)
            self._tell(told)
        else:
            self._untold[key] = told

    def refused(self, asked: Asked | None, refusal: Refusal) -> None:
        """Something was refused."""
        key, times = self._counted(asked, False, refusal.reason)
        decided = Decided(
            asked=key[0],
            allowed=False,
            reason=key[2] or "refused",
            address_range=refusal.address_range,
            unlisted=refusal.unlisted,
            times=times,
        )
        self._tell_now_and_then(key, times, decided)

    def allowed(self, asked: Asked, protocol: Protocol, address: str) -> Passing:
        """Something is let pass; what passes is counted by what is returned."""
        key, times = self._counted(asked, True, protocol)
        decided = Decided(asked=asked, allowed=True, reason="listed", protocol=protocol, address=address, times=times)
        self._tell_now_and_then(key, times, decided)
        return Passing(self, asked)

    def _counted(self, asked: Asked | None, allowed: bool, reason: str) -> tuple[_Kind, int]:
        key: _Kind = (asked, allowed, reason)
        if key not in self._times and len(self._times) >= MAX_KINDS:
            key = (BEYOND_KINDS, allowed, "")
        self._times[key] = self._times.get(key, 0) + 1
        return key, self._times[key]

    def ended(self, passing: Passing) -> None:
        """A connection is over."""
        known = passing.asked in self._sums or len(self._sums) < MAX_KINDS
        asked = passing.asked if known else BEYOND_KINDS
        sums = self._sums.setdefault(asked, _Sums())
        sums.sent_bytes += passing.sent_bytes
        sums.received_bytes += passing.received_bytes
        sums.ended += 1
        ended = Ended(
            asked=asked,
            sent_bytes=passing.sent_bytes,
            received_bytes=passing.received_bytes,
            duration_s=time.monotonic() - passing.started_s,
            total_sent_bytes=sums.sent_bytes,
            total_received_bytes=sums.received_bytes,
            reason=passing.reason,
        )
        self._tell_now_and_then(asked, sums.ended, ended)


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
        self.ledger.total_sent_bytes += size_bytes

    def received(self, size_bytes: int) -> None:
        self.received_bytes += size_bytes
        self.ledger.total_received_bytes += size_bytes

    def end(self) -> None:
        """It is over."""
        self.ledger.ended(self)
