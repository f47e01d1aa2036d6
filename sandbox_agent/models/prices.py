"""What tokens cost: by the prices that the policy gives, else by those that the package `genai-prices` knows.

A price that nobody knows is None and never 0. The package is optional, and costs 0.25 s of CPU to import: `load` can be
called in a thread before the first cost is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from sandbox_agent import registry
from sandbox_agent.types import Price, Usage

Known = Callable[[str, Usage], float | None]
"""Model and what one request used, to US dollars; None where the model is not known."""

PACKAGE: Final = "genai_prices"
_MILLION = 1_000_000


class Prices:
    """The prices of one session.

    Args:
        given: pattern of a model's name to its price; the first that fits counts, before what is known.
        known: takes the place of the package, for tests.
    """

    def __init__(self, given: Sequence[tuple[str, Price]] = (), *, known: Known | None = None) -> None:
        self._given = given
        self._known = known

    def load(self) -> None:
        """Import what is known of prices, if it is installed. Safe to call twice."""
        if self._known is None:
            self._known = _known_prices()

    @property
    def package_missing(self) -> bool:
        """Whether prices could be known that are not, for want of the package."""
        self.load()
        return self._known is _nothing_known

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """What one request cost; None where the model's price is not known.

        Args:
            model: the name the answer carries, or one with the kind before it (`anthropic:NAME`).
            usage: of this request alone: some prices hang on its length.
        """
        bare = model.removeprefix("anthropic:")
        for pattern, price in self._given:
            if fnmatchcase(model, pattern) or fnmatchcase(bare, pattern):
                return _cost_usd(price, usage)
        self.load()
        assert self._known is not None
        return self._known(bare, usage)


def _cost_usd(price: Price, usage: Usage) -> float:
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + (usage.cache_creation_input_tokens - usage.cache_creation_1h_input_tokens) * price.cache_write
        + usage.cache_creation_1h_input_tokens * price.cache_write_1h
        + usage.cache_read_input_tokens * price.cache_read
    ) / _MILLION


def _known_prices() -> Known:
    try:
        known: Known = registry.load("models", "known_prices").cost_usd
    except ModuleNotFoundError as exc:
        if exc.name != PACKAGE:
            raise
        return _nothing_known
    return known


def _nothing_known(_model: str, _usage: Usage) -> None:
    return None
