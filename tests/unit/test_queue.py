"""now, next and later, first come first served."""

from __future__ import annotations

import pytest

from sandbox_agent.engine.queue import MessageQueue, Priority


def texts(queue: MessageQueue, up_to: Priority) -> list[str]:
    return [message.content[0]["text"] for message in queue.take(up_to)]


def test_sooner_lanes_come_first_and_each_is_in_order() -> None:
    """Whatever the order of putting."""
    queue = MessageQueue()
    for text, priority in [("l1", Priority.LATER), ("n1", Priority.NEXT), ("now", Priority.NOW), ("n2", Priority.NEXT)]:
        queue.put(text, priority)

    assert texts(queue, Priority.NEXT) == ["now", "n1", "n2"]
    assert texts(queue, Priority.LATER) == ["l1"]
    assert not queue.waiting()


def test_empty_text_is_refused() -> None:
    """The API takes no empty block."""
    with pytest.raises(ValueError, match="empty"):
        MessageQueue().put(" \n")
