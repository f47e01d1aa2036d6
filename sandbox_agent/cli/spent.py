"""What the runs of a session used, as its record tells: for `sandbox-agent sessions`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandbox_agent.engine.budget import amount
from sandbox_agent.events import (
    AssistantMessage,
    ConversationCompacted,
    LimitReached,
    ModelSwitched,
    RequestStarted,
    RunFinished,
    SessionStarted,
)
from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.tape import Entry
from sandbox_agent.types import Usage


@dataclass(frozen=True, slots=True)
class Spent:
    """One run, or all of them: `cost_usd` is None where it is not known of a part. `limit` is the one that ended it."""

    status: str
    turns: int
    usage: Usage
    cost_usd: float | None
    limit: tuple[str, float] | None = None

    def line(self) -> str:
        """For people, sanitised."""
        status = sanitise(self.status.replace("_", " "))
        if self.limit is not None:
            status += f" ({sanitise(self.limit[0])} = {amount(*self.limit)})"
        parts = [words.count(self.turns, "turn"), words.tokens(self.usage), words.cost(self.cost_usd, self.usage)]
        return f"{status} · {', '.join(filter(None, parts))}"


def runs(entries: Iterable[Entry]) -> list[Spent]:
    """Each run in the order of the record; one that was killed has the status "unfinished" and no cost.

    What a fork has from the session that it comes from was used there.
    """
    found: list[Spent] = []
    inherited, turns, usage, limit = False, 0, Usage(), None
    for entry in entries:
        match entry.event:
            case SessionStarted() as event:
                if turns and not inherited:
                    found.append(Spent("unfinished", turns, usage, None))
                inherited, turns, usage, limit = event.forked_from is not None, 0, Usage(), None
            case RequestStarted(agent_id="main"):
                turns += 1
            case AssistantMessage() | ConversationCompacted() | ModelSwitched() as event:
                usage += event.usage
            case LimitReached(agent_id="main") as event:
                limit = event.limit, event.value
            case RunFinished(agent_id="main") as event:
                ended_by = limit if event.status == "limit" else None
                found.append(Spent(event.status, event.turns, event.usage, event.cost_usd, ended_by))
                turns, usage, limit = 0, Usage(), None
            case _:
                pass
    if turns and not inherited:
        found.append(Spent("unfinished", turns, usage, None))
    return found


def in_all(spent: Sequence[Spent]) -> Spent:
    """All runs together; the status says how many they are."""
    costs = [one.cost_usd for one in spent if one.usage.total_tokens]
    known = [cost for cost in costs if cost is not None]
    return Spent(
        words.count(len(spent), "run"),
        sum(one.turns for one in spent),
        sum((one.usage for one in spent), Usage()),
        sum(known) if known and len(known) == len(costs) else None,
    )
