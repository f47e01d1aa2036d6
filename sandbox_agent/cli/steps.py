"""The steps of a session as its record tells them, for `sandbox-agent sessions show`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_agent.events import CheckpointTaken, ToolStarted
from sandbox_agent.tape import Entry
from sandbox_agent.types import JsonObject

_ORIGINS = {
    "base": "before the first tool",
    "start": "found at the start: a killed run, or somebody else, left these",
    "fork": "the tree that this fork began with",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One step. `calls` have the tool and its one-line summary; `changed` as in `CheckpointTaken`."""

    event: CheckpointTaken
    time_unix_s: float
    calls: tuple[JsonObject, ...]

    def as_json(self) -> JsonObject:
        return {
            "step": self.event.step,
            "time_unix_s": self.time_unix_s,
            "origin": self.event.origin,
            "calls": list(self.calls),
            "restored": self.event.restored,
            "changed": list(self.event.changed),
            "changed_count": self.event.changed_count,
            "lost": list(self.event.lost),
            "tree_sha256": self.event.tree_sha256,
        }

    @property
    def cause(self) -> str:
        """What made it, in a line."""
        if self.calls:
            return "; ".join(f"{call['tool']}: {call['summary']}" for call in self.calls)
        if self.event.restored is not None:
            return f"undo to step {self.event.restored}"
        return _ORIGINS.get(self.event.origin, "changed outside of the calls")


def rows(entries: Iterable[Entry]) -> list[Row]:
    """All steps in the order of the record."""
    calls: dict[str, JsonObject] = {}
    found = []
    for entry in entries:
        match entry.event:
            case ToolStarted(call_id=call_id, tool=tool, summary=summary):
                calls[call_id] = {"call_id": call_id, "tool": tool, "summary": summary}
            case CheckpointTaken() as event:
                named = tuple(calls.get(call, {"call_id": call, "tool": "?", "summary": ""}) for call in event.call_ids)
                found.append(Row(event, entry.time_unix_s, named))
            case _:
                pass
    return found
