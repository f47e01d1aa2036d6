"""What a run may use and has used: one for all agents of a session. Turns are each agent's own and are told to it.

It counts and says. The loop asks it before each request, ends a run that is over, and tells the model when little is
left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox_agent.errors import ConfigError
from sandbox_agent.models.names import full_name
from sandbox_agent.models.prices import Prices
from sandbox_agent.prompts import prompt
from sandbox_agent.types import Limits, Usage

LOW_PART = 0.8
"""From here on, little is left: the model is told."""

_WORDS = {
    "turns": "requests to the model",
    "tokens": "tokens",
    "cost_usd": "US dollars",
    "wall_s": "seconds",
}


class Reached(NamedTuple):
    """A limit that was hit: its name in the policy, what it allows, and why that is all."""

    name: str
    value: float
    reason: str


class InAll(NamedTuple):
    """What a session has used since it was opened, between its runs as well; the cost is None where it is not known."""

    usage: Usage
    cost_usd: float | None


@dataclass(slots=True)
class Budget:
    """What was used since `begin`. `usage` is by the model's name; `unpriced` is the first model without a price."""

    limits: Limits
    prices: Prices = field(default_factory=Prices)
    clock: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    usage: dict[str, Usage] = field(init=False)
    unpriced: str | None = field(init=False)
    _cost_usd: float = field(init=False)
    _told: set[tuple[str, str]] = field(init=False)
    in_all: InAll = field(default=InAll(Usage(), 0.0), init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new run: everything counts from here."""
        self.started_s = self.clock()
        self.usage, self.unpriced, self._cost_usd, self._told = {}, None, 0.0, set()

    def check(self, models: Iterable[str | None]) -> None:
        """Refuse a limit that could not be kept.

        Raises:
            ConfigError: there is a limit on the cost, and no price for one of these models.
        """
        if self.limits.cost_usd is None:
            return
        for name in filter(None, map(full_name, models)):
            if self.prices.cost_usd(name, Usage()) is None:
                raise ConfigError(
                    f"the cost is limited to {self.limits.cost_usd:g} USD, and no price is known for the model {name}: "
                    f"{self._how_to_give(name)}"
                )

    def spend(self, model: str, usage: Usage) -> None:
        """One request was answered. One without figures is none: a scripted model says what it says for free."""
        if usage == Usage():
            return
        self.usage[model] = self.usage.get(model, Usage()) + usage
        cost_usd = self.prices.cost_usd(model, usage)
        if cost_usd is not None:
            self._cost_usd += cost_usd
        elif self.unpriced is None:
            self.unpriced = model
        used, known_usd = self.in_all
        self.in_all = InAll(used + usage, None if known_usd is None or cost_usd is None else known_usd + cost_usd)

    def cost_of(self, model: str, usage: Usage) -> float | None:
        """What one request cost; None where it is not known, or nothing was used."""
        return None if usage == Usage() else self.prices.cost_usd(model, usage)

    @property
    def total(self) -> Usage:
        """All models together."""
        return sum(self.usage.values(), Usage())

    @property
    def cost_usd(self) -> float | None:
        """None where it is not known, or where nothing was used."""
        return self._cost_usd if self.usage and self.unpriced is None else None

    def over(self) -> Reached | None:
        """The limit that all agents together have hit, None if there is none. Time is the loop's own to keep."""
        tokens, cost_usd = self.limits.tokens, self.limits.cost_usd
        if tokens is not None and self.total.total_tokens >= tokens:
            return Reached("tokens", tokens, f"{self.total.total_tokens:,} were used")
        if cost_usd is not None and self.unpriced is not None:
            return Reached(
                "cost_usd", cost_usd, f"no price is known for {self.unpriced}: {self._how_to_give(self.unpriced)}"
            )
        if cost_usd is not None and self._cost_usd >= cost_usd:
            return Reached("cost_usd", cost_usd, f"{amount('cost_usd', self._cost_usd)} were used")
        return None

    def warnings(self, agent_id: str, turns: int, max_turns: int | None) -> list[str]:
        """What to tell this agent before its next request, in words for the model: each limit once.

        Args:
            agent_id: the agent.
            turns: the requests it has made in this run.
            max_turns: its own limit on these.
        """
        found = []
        for name, used, limit in self._used(turns, max_turns):
            if limit is None or (agent_id, name) in self._told or not _is_low(name, used, limit):
                continue
            self._told.add((agent_id, name))
            words = prompt("engine/limit_low")
            found.append(words.format(used=amount(name, used), limit=amount(name, limit), what=_WORDS[name]))
        return found

    def _how_to_give(self, model: str) -> str:
        example = f"limits: {{prices: {{{model!r}: {{input: 3, output: 15}}}}}}"
        install = ", or install the extra: pip install 'sandbox-agent[prices]'" if self.prices.package_missing else ""
        return f"give it in your policy, in USD for a million tokens, as in {example}{install}"

    def _used(self, turns: int, max_turns: int | None) -> Sequence[tuple[str, float, float | None]]:
        return (
            ("turns", turns, max_turns),
            ("tokens", self.total.total_tokens, self.limits.tokens),
            ("cost_usd", self._cost_usd, self.limits.cost_usd),
            ("wall_s", self.clock() - self.started_s, self.limits.wall_s),
        )


def amount(name: str, value: float) -> str:
    """A limit, or what was used of it, as people read it; without its unit."""
    if name == "cost_usd":
        if value < 0.0001:
            return f"{value:.2g}"
        return f"{value:,.4f}" if value < 0.1 else f"{value:,.2f}"
    return f"{round(value):,}" if value >= 1 else f"{value:g}"


def _is_low(name: str, used: float, limit: float) -> bool:
    # Whole steps: of three requests the last is the time to say so, though two are less than four fifths.
    low = max(1, int(LOW_PART * limit)) if name == "turns" else LOW_PART * limit
    return low <= used < limit
