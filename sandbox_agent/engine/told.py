"""What a step, and a fork's beginning, are told as: events for the record and lines for the person."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_agent.events import CheckpointTaken, Event, Notice
from sandbox_agent.workspaces.snapshot import Delta
from sandbox_agent.workspaces.steps import Step

SHOWN_CHANGES = 1000
SHOWN_LOST = 20


def events_of(step: Step, deltas: Sequence[Delta], duration_s: float) -> list[Event]:
    """The event of a step, and a warning where it is not kept whole."""
    lost = [delta.path for delta in deltas if delta.after is not None and delta.after.lost]
    events: list[Event] = [
        CheckpointTaken(
            step=step.number,
            origin=step.origin,
            call_ids=step.call_ids,
            changed=tuple({"path": delta.path, "kind": delta.kind} for delta in deltas[:SHOWN_CHANGES]),
            changed_count=len(deltas),
            tree_sha256=step.tree_sha256,
            duration_s=duration_s,
            restored=step.restored,
            lost=tuple(lost[:SHOWN_LOST]),
        )
    ]
    if lost:
        text = (
            f"step {step.number} is kept without the content of {shown(lost)} (too large or unreadable): no undo to it"
        )
        events.append(Notice(level="warning", text=text))
    return events


def shown(paths: Sequence[str], most: int = 5) -> str:
    """The first few of some paths, and how many more there are."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(path or "the workspace folder" for path in paths[:most]) + more
