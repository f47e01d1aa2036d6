"""The engine's only input. `now` interrupts, `next` goes in before the next model request, `later` only when the
agent would stop. First come, first served within one priority.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

from sandbox_agent.types import JsonObject


class Priority(enum.IntEnum):
    """When a message is taken; smaller is sooner."""

    NOW = 0
    NEXT = 1
    LATER = 2


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """Content blocks for the model, with their priority."""

    content: tuple[JsonObject, ...]
    priority: Priority


class MessageQueue:
    """Three lanes. Putting never waits; the loop takes at the points its semantics name."""

    def __init__(self) -> None:
        self._lanes: dict[Priority, deque[QueuedMessage]] = {priority: deque() for priority in Priority}

    def put(self, text: str, priority: Priority = Priority.NEXT) -> None:
        """Queue a text for the model. Empty text is refused: the API takes no empty block.

        Raises:
            ValueError: the text is empty or only white space.
        """
        if not text.strip():
            raise ValueError("an empty message cannot be queued")
        self._lanes[priority].append(QueuedMessage(({"type": "text", "text": text},), priority))

    def take(self, up_to: Priority) -> list[QueuedMessage]:
        """Everything waiting at `up_to` or sooner, soonest first."""
        taken: list[QueuedMessage] = []
        for priority in Priority:
            if priority <= up_to:
                taken.extend(self._lanes[priority])
                self._lanes[priority].clear()
        return taken

    def waiting(self, up_to: Priority = Priority.LATER) -> bool:
        return any(self._lanes[priority] for priority in Priority if priority <= up_to)
