"""now, next and later, first come first served."""

from __future__ import annotations

import anyio
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


async def test_who_waits_for_a_message_gets_the_next_one_whatever_was_taken_meanwhile() -> None:
    """Taking from an empty queue, or taking the last message back, wakes nobody and loses nobody."""
    queue = MessageQueue()
    heard = anyio.Event()

    async def wait() -> None:
        await queue.arrived()
        heard.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            queue.take(Priority.LATER)
            queue.withdraw(queue.put("taken back"))
            await anyio.wait_all_tasks_blocked()

            assert not heard.is_set()
            queue.put("kept")
            await heard.wait()
