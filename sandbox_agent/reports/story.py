"""A session as its reports see it: what `telling` makes of a record, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox_agent.events import ChangesApplied, HookRan, McpServerChanged, SessionStarted
from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.frontends.network import HostsAsked
from sandbox_agent.reports.parts import Call, Item, Job, Request, Task, Work
from sandbox_agent.types import JsonObject, Usage


@dataclass(slots=True)
class Story:
    """`items` are the first agent's, in order; what sub-agents did hangs on the calls that started them.

    `changes` are the entries of the last review. `damaged_lines` and `chain_ok` are the record's own state.
    """

    session_id: str = ""
    started: SessionStarted | None = None
    starts: list[SessionStarted] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    hooks: list[HookRan] = field(default_factory=list)
    servers: dict[str, McpServerChanged] = field(default_factory=dict)
    hosts: HostsAsked = field(default_factory=HostsAsked)
    changes: tuple[JsonObject, ...] = ()
    applied: ChangesApplied | None = None
    checks: list[CheckFinished] = field(default_factory=list)
    """Of the last task."""
    other_usage: Usage = field(default_factory=Usage)
    """Of summaries and refused answers, which are no request of the conversation."""
    entries: int = 0
    damaged_lines: int = 0
    chain_ok: bool = True
    head: str = ""
    first_unix_s: float = 0.0
    last_unix_s: float = 0.0

    @property
    def status(self) -> str:
        """How the last task ended: "failed" where a check of it did, "unfinished" where its end is not recorded."""
        status = self.tasks[-1].status if self.tasks else "unfinished"
        return "failed" if status in ("done", "denied") and not all(one.passed for one in self.checks) else status

    @property
    def own_calls(self) -> list[Call]:
        """Without those that the session it is a fork of made."""
        return [call for call in self.calls if not call.inherited]

    @property
    def own_tasks(self) -> list[Task]:
        return [task for task in self.tasks if not task.inherited]

    @property
    def usage(self) -> Usage:
        """Of all requests of this session, whoever made them."""
        used = (one.usage for one in self.requests if one.usage is not None and not one.inherited)
        return sum(used, self.other_usage)

    @property
    def cost_usd(self) -> float | None:
        """What its tasks cost; None where it is not known of one, or nothing was used."""
        costs = [task.cost_usd for task in self.own_tasks if task.used_tokens]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None


def text_of(content: str | Iterable[JsonObject]) -> str:
    """The text of blocks; others are named by their type, as "<image>"."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(block.get("text", "")) if block.get("type") == "text" else f"<{block.get('type')}>" for block in content
    )
