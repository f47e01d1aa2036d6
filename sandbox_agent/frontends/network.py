"""What front ends show of the network: refusals as they happen, and at the end every host that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox_agent.events import EgressDecided, EgressEnded
from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.hostnames import authority
from sandbox_agent.types import JsonObject

SHOWN_HOSTS = 30
_REASONS = 3


@dataclass(slots=True)
class _Host:
    """One host and port. Counts by why; bytes of all its connections."""

    allowed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0


class HostsAsked:
    """The fold of the events of a run."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, int], _Host] = {}

    def feed(self, event: EgressDecided | EgressEnded) -> None:
        """Take in one event. Counts and sums in them are of the whole run, so that what was not told is in the next."""
        host = self._hosts.setdefault((event.host, event.port), _Host())
        if isinstance(event, EgressEnded):
            host.sent_bytes, host.received_bytes = event.total_sent_bytes, event.total_received_bytes
        elif event.verdict == "allow":
            host.allowed[event.protocol] = event.times
        else:
            host.refused[event.reason] = event.times

    def as_json(self) -> list[JsonObject]:
        """One object a host and port, in the order of the first question; "" is what was no request for a host."""
        return [
            {
                "host": name,
                "port": port,
                "allowed": sum(host.allowed.values()),
                "refused": sum(host.refused.values()),
                "reasons": [*host.refused][:_REASONS],
                "sent_bytes": host.sent_bytes,
                "received_bytes": host.received_bytes,
            }
            for (name, port), host in self._hosts.items()
        ]

    def lines(self) -> list[str]:
        """For people: nothing where nothing was asked."""
        if not self._hosts:
            return []
        shown = [f"  {_line(name, port, host)}" for (name, port), host in self._hosts.items()][:SHOWN_HOSTS]
        more = [f"  and {len(self._hosts) - SHOWN_HOSTS:,} more"] if len(self._hosts) > SHOWN_HOSTS else []
        return ["hosts asked for:", *shown, *more]


def decision_line(event: EgressDecided, *, verbose: bool) -> str | None:
    """The line for one decision: refusals once for each reason, what is let pass only if everything is wanted."""
    if event.times > 1:
        return None
    if event.verdict == "deny":
        return f"! network: refused: {sanitise(event.reason)}"
    return f"network: {sanitise(authority(event.host, event.port))} ({sanitise(event.protocol)})" if verbose else None


def line_of(event: EgressDecided | EgressEnded) -> JsonObject:
    """The fields of the line in stream-json."""
    if isinstance(event, EgressEnded):
        return {
            "subtype": "egress_ended",
            "host": event.host,
            "port": event.port,
            "sent_bytes": event.sent_bytes,
            "received_bytes": event.received_bytes,
            "duration_ms": round(event.duration_s * 1000),
            "reason": event.reason,
        }
    return {
        "subtype": "egress_decided",
        "host": event.host,
        "port": event.port,
        "verdict": event.verdict,
        "reason": event.reason,
        "protocol": event.protocol,
        "address": event.address,
        "address_range": event.address_range,
        "tool_use_ids": list(event.call_ids),
        "times": event.times,
    }


def _line(name: str, port: int, host: _Host) -> str:
    """The line is sanitised by who prints it."""
    said = []
    if host.allowed:
        said.append(words.count(sum(host.allowed.values()), "connection"))
        said.append(f"{_size(host.sent_bytes)} sent, {_size(host.received_bytes)} received")
    if host.refused:
        reasons = "; ".join([*host.refused][:_REASONS])
        said.append(f"refused {words.count(sum(host.refused.values()), 'time')} ({reasons})")
    return f"{authority(name, port) if name else 'no request for a host'}: {', '.join(said)}"


def _size(size_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} B"
