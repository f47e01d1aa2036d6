"""What `sessions list` says of a session, read from its record; and the filters over that."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from sandbox_agent.cli import spent
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.events import (
    AssistantMessage,
    CheckFinished,
    CheckStarted,
    ConversationCompacted,
    LimitReached,
    ModelSwitched,
    ProjectInstructions,
    RequestStarted,
    RunFinished,
    SessionStarted,
    UserMessage,
)
from sandbox_agent.tape import Entry, read_tape
from sandbox_agent.types import Usage

_NEEDED = (
    AssistantMessage,
    CheckFinished,
    CheckStarted,
    ConversationCompacted,
    LimitReached,
    ModelSwitched,
    RequestStarted,
    RunFinished,
    SessionStarted,
    UserMessage,
)
_AGO = re.compile(r"(\d{1,6})([mhdw])\Z")
_UNIT_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")

STATUSES = (
    "done",
    "denied",
    "failed",
    "limit",
    "sandbox_error",
    "model_error",
    "interrupted",
    "unfinished",
    "unreadable",
)


@dataclass(slots=True)
class Row:
    """One session. `status` is "unfinished" while, or if, its run or a check of it has not ended; "unreadable" where
    its record is, and "failed" where a run was done and a check of it did not pass.

    `usage` and `cost_usd` are of all its runs; the cost is None where it is not known of one, or nothing was used.
    """

    session_id: str
    started_unix_s: float = 0.0
    workspace: str = ""
    model: str = ""
    task: str = ""
    status: str = "unfinished"
    forked_from: str | None = None
    forked_step: int | None = None
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions are wanted; None and () want all. `folder` is that folder and those below it."""

    folder: Path | None = None
    statuses: tuple[str, ...] = ()
    since_unix_s: float | None = None
    text: str | None = None

    def wants(self, row: Row) -> bool:
        """Whether a session is among them."""
        if self.folder is not None and not Path(row.workspace).is_relative_to(self.folder):
            return False
        if self.statuses and row.status not in self.statuses:
            return False
        if self.since_unix_s is not None and row.started_unix_s < self.since_unix_s:
            return False
        return self.text is None or self.text.casefold() in row.task.casefold()


class Since(click.ParamType[float]):
    """A day, a day with a time, or how long ago, as seconds since 1970."""

    name = "WHEN"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType.convert`."""
        if isinstance(value, int | float):
            return float(value)
        ago = _AGO.match(str(value))
        if ago is not None:
            return time.time() - int(ago[1]) * _UNIT_S[ago[2]]
        for form in _DATES:
            try:
                return time.mktime(time.strptime(str(value), form))
            except (ValueError, OverflowError):
                continue
        return self.fail(
            f"{value!r}: give a day (2026-11-30), a time (2026-11-30 14:00), or how long ago (90m, 12h, 7d, 2w)"
        )


def read_row(sessions: Path, session_id: str) -> Row:
    """The row of a session, from its record as it is now.

    Raises:
        RecordError: it cannot be read.
    """
    return row_of(session_id, read_tape(sessions / session_id / EVENTS_FILE, only=_NEEDED).entries)


def unreadable(session_id: str) -> Row:
    """For a record that `read_row` cannot read."""
    return Row(session_id, status="unreadable")


def row_of(session_id: str, entries: Sequence[Entry]) -> Row:
    """The row of a session whose record has these entries."""
    row, ended, due = Row(session_id), "unfinished", 0
    whole = spent.in_all(spent.runs(entries))
    row.turns, row.usage, row.cost_usd = whole.turns, whole.usage, whole.cost_usd
    for entry in entries:
        match entry.event:
            case SessionStarted() as started:
                row.started_unix_s, row.workspace, row.model = entry.time_unix_s, started.workspace, started.model
                if started.forked_from is not None:  # only the first says so, not what it is gone on with
                    row.forked_from, row.forked_step = started.forked_from, started.forked_step
            case ProjectInstructions():
                pass
            case UserMessage(agent_id="main", content=content) if not row.task:
                row.task = " ".join(str(block.get("text", "")) for block in content)
            case RunFinished(agent_id="main") as finished:
                row.status = finished.status
            case CheckStarted(number=number, count=count):
                ended = row.status if number == 1 else ended
                row.status, due = "unfinished", count - number
            case CheckFinished(passed=passed):
                ended = "failed" if not passed and ended in ("done", "denied") else ended
                row.status = row.status if due else ended
            case _:
                pass
    return row
