"""How long a conversation is, and how long it may become: counted by the model where it has said so, else estimated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_agent.models.base import Model
from sandbox_agent.tools.pool import ToolPool
from sandbox_agent.types import JsonObject, Usage

DEFAULT_TOKENS = 200_000
"""The window of a model that nobody tells of."""
FULL_PART = 0.8
"""A conversation of that part of the window has to become shorter: the rest is for the answer, and for estimates."""
ROOMY_PART = 0.5
"""Trimming alone has to get a conversation below that part, or it would be done again a few turns later."""

GROWN_PART = 0.2
"""By that part of the window a summarised conversation has to grow before it is summarised again, however long it is: a
task that alone nearly fills the window would else have a summary for each turn."""

CHARS_PER_TOKEN = 3
"""Code has more than that, rarely less; it is better to be early."""
_PICTURE_TOKENS = 2_000
_BLOCK_TOKENS = 5
_TOO_LONG = re.compile(r"[\d,]+ tokens? > ([\d,]+)")


def estimate(value: Any) -> int:
    """Tokens of messages, blocks, definitions or texts, roughly and rather too many."""
    return _chars(value) // CHARS_PER_TOKEN


def _chars(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        source = value.get("source")
        if value.get("type") in ("image", "document") and isinstance(source, Mapping):
            # A page of a document is a picture and its text; 50 kB of base64 is a usual one.
            pages = 1 if value["type"] == "image" else 1 + len(str(source.get("data", ""))) // 50_000
            return pages * _PICTURE_TOKENS * CHARS_PER_TOKEN
        return _BLOCK_TOKENS * CHARS_PER_TOKEN + sum(len(key) + _chars(one) for key, one in value.items())
    if isinstance(value, Iterable):
        return sum(map(_chars, value))
    return len(str(value))


@dataclass(slots=True)
class Window:
    """The window of one agent's model. `cap_tokens` is what the policy allows at most, None where it says nothing."""

    cap_tokens: int | None = None
    floor_tokens: int = field(default=0, init=False)
    """How long the conversation was after it was last summarised: a summary can hardly make it shorter."""
    _learned_tokens: dict[str | None, int | None] = field(default_factory=dict, init=False)
    """By the name of another model, None for the usual one."""
    _counted: tuple[int, int] | None = field(default=None, init=False)
    """What the model counted, and what was estimated for the very same."""
    _sizes: dict[int, tuple[object, int]] = field(default_factory=dict, init=False)
    """What was measured last time, by identity: a message that is there still has not changed."""

    async def tokens(self, model: Model, used_tokens: int, name: str | None = None) -> int:
        """How long a conversation may be.

        Args:
            model: the agent's.
            used_tokens: how long it is by now: who has to ask for the window does so when it gets long.
            name: of another model, as in a request.
        """
        if self._learned_tokens.get(name) is None:
            self._learned_tokens[name] = await model.window_tokens(used_tokens, name)
        whole = self._learned_tokens[name] or DEFAULT_TOKENS
        return whole if self.cap_tokens is None else min(whole, self.cap_tokens)

    def used(self, messages: Sequence[JsonObject], fixed: Sequence[object] = ()) -> int:
        """How long the conversation is.

        Args:
            messages: all of it.
            fixed: what every request has besides: instructions and the pool of tools.
        """
        estimated = self._estimate(messages, fixed)
        if self._counted is None:
            return estimated
        counted, then = self._counted
        # What came is estimated, rather too high; what went is taken off in proportion, or it would be too much.
        return counted + estimated - then if estimated >= then else counted * estimated // then

    def count(self, usage: Usage, messages: Sequence[JsonObject], fixed: Sequence[object] = ()) -> None:
        """Take the model's word for it, as its last answer gives it; `messages` are those with that answer."""
        if usage.total_tokens:
            self._counted = usage.total_tokens, self._estimate(messages, fixed)

    def _estimate(self, messages: Sequence[JsonObject], fixed: Sequence[object]) -> int:
        # Each turn asks twice, and a long conversation takes 5 ms to measure.
        before, self._sizes = self._sizes, {}
        for one in (*fixed, *messages):
            known = before.get(id(one))
            if known is None:
                known = one, _chars(one.definitions() if isinstance(one, ToolPool) else one)
            self._sizes[id(one)] = known
        return sum(chars for _, chars in self._sizes.values()) // CHARS_PER_TOKEN

    def is_full(self, used_tokens: int, window_tokens: int) -> bool:
        """Whether a conversation so long has to become shorter."""
        return used_tokens >= max(FULL_PART * window_tokens, self.floor_tokens + GROWN_PART * window_tokens)

    def forget(self) -> None:
        """The conversation is another one now: what was counted says nothing of it."""
        self._counted = None
        self.floor_tokens = 0

    def learn(self, refusal: str, name: str | None = None) -> None:
        """Take the window from a refusal for length, where it names it ("205000 tokens > 200000 maximum")."""
        found = _TOO_LONG.search(refusal)
        if found is not None:
            self._learned_tokens[name] = int(found[1].replace(",", "")) or None
