"""What the calls of a run used on this machine: for the last lines of a run, and for JSON."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_agent.events import CallEffects
from sandbox_agent.frontends import words
from sandbox_agent.types import JsonObject


@dataclass(slots=True)
class Resources:
    """The fold of the events. `cpu_s` is of all calls, `max_rss_bytes` of the largest process of any; None where no
    call's is known. `calls` counts those that ran."""

    calls: int = 0
    cpu_s: float | None = None
    max_rss_bytes: int | None = None

    def feed(self, event: CallEffects) -> None:
        """Take in what one call did."""
        self.calls += 1
        if event.cpu_s is not None:
            self.cpu_s = (self.cpu_s or 0.0) + event.cpu_s
        if event.max_rss_bytes is not None:
            self.max_rss_bytes = max(self.max_rss_bytes or 0, event.max_rss_bytes)

    def as_json(self) -> JsonObject:
        """All of it."""
        return {"calls": self.calls, "cpu_s": self.cpu_s, "max_rss_bytes": self.max_rss_bytes}

    def lines(self) -> list[str]:
        """For people: nothing where nothing is known."""
        parts = [
            f"{words.duration(self.cpu_s)} CPU" if self.cpu_s is not None else "",
            f"peak memory {words.size(self.max_rss_bytes)}" if self.max_rss_bytes is not None else "",
        ]
        used = ", ".join(filter(None, parts))
        return [f"{words.count(self.calls, 'call')}: {used}"] if used else []
