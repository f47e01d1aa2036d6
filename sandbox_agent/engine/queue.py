"""The engine's only input. `now` interrupts, `next` goes in before the next model request, `later` only when the
agent would stop. First come, first served within one priority.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from sandbox_agent.types import JsonObject


class Priority(enum.IntEnum):
    """When a message is taken; smaller is sooner."""

    NOW = 0
    NEXT = 1
    LATER = 2


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """Content blocks for the model, with their priority. `wakes`: the agent does not stop before it has had this; a
    note that does not only rides along with what the agent gets anyway."""

    content: tuple[JsonObject, ...]
    priority: Priority
    wakes: bool = True


class MessageQueue:
    """Three lanes. Putting never waits; the loop takes at the points its semantics name.

    `when_now` is called when a `now` message has come: it ends the present turn.
    """

    def __init__(self) -> None:
        self._lanes: dict[Priority, deque[QueuedMessage]] = {priority: deque() for priority in Priority}
        self._arrival = anyio.Event()
        self.when_now: Callable[[], None] | None = None

    def put(self, text: str, priority: Priority = Priority.NEXT, *, wakes: bool = True) -> QueuedMessage:
        """Queue a text for the model. Empty text is refused: the API takes no empty block.

        Returns:
            What may be given to `withdraw`.

        Raises:
            ValueError: the text is empty or only white space.
        """
        if not text.strip():
            raise ValueError("an empty message cannot be queued")
        return self.put_blocks(({"type": "text", "text": text},), priority, wakes=wakes)

    def put_blocks(
        self, content: Sequence[JsonObject], priority: Priority = Priority.NEXT, *, wakes: bool = True
    ) -> QueuedMessage:
        """Queue content blocks as the Messages API takes them in a user message. See `put`.

        Raises:
            ValueError: there are none.
        """
        if not content:
            raise ValueError("an empty message cannot be queued")
        message = QueuedMessage(tuple(content), priority, wakes)
        self._lanes[priority].append(message)
        if wakes:
            self._arrival.set()
        if priority is Priority.NOW and self.when_now is not None:
            self.when_now()
        return message

    def withdraw(self, message: QueuedMessage) -> None:
        """Take back what waits, because the model has been told otherwise; nothing where it was taken already."""
        lane = self._lanes[message.priority]
        left = [one for one in lane if one is not message]
        lane.clear()
        lane.extend(left)
        self._note_absence()

    def holds(self, message: QueuedMessage) -> bool:
        """Whether it waits still."""
        return any(one is message for one in self._lanes[message.priority])

    def take(self, up_to: Priority) -> list[QueuedMessage]:
        """Everything waiting at `up_to` or sooner, soonest first."""
        taken: list[QueuedMessage] = []
        for priority in Priority:
            if priority <= up_to:
                taken.extend(self._lanes[priority])
                self._lanes[priority].clear()
        self._note_absence()
        return taken

    def waiting(self, up_to: Priority = Priority.LATER) -> bool:
        """Whether a message is there that the agent does not stop before."""
        return any(one.wakes for priority in Priority if priority <= up_to for one in self._lanes[priority])

    async def arrived(self) -> None:
        """Wait until `waiting` is true."""
        while not self.waiting():
            await self._arrival.wait()

    def _note_absence(self) -> None:
        # One that is not set has whoever waits: in its place they would wait for ever.
        if not self.waiting() and self._arrival.is_set():
            self._arrival = anyio.Event()
