"""TodoWrite: the list as data, and the one rule about steps in progress."""

from __future__ import annotations

import pytest

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import call, context, refused
from sandbox_agent.tools.todo_write import TOOL as TODO_WRITE


def todos(*statuses: str) -> list[dict[str, str]]:
    return [{"content": f"Do {n}", "status": status, "activeForm": f"Doing {n}"} for n, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        (("completed", "in_progress", "pending", "pending"), "1 done, 1 in progress, 2 to do."),
        (("pending", "pending"), "0 done, 0 in progress, 2 to do."),
        (("completed", "completed"), "2 done, 0 in progress, 0 to do."),
        (("in_progress",), "0 done, 1 in progress, 0 to do."),
        ((), "0 done, 0 in progress, 0 to do."),
    ],
)
async def test_a_list_is_taken_over_whole(statuses: tuple[str, ...], text: str) -> None:
    """The result counts, the data for front ends is the list itself."""
    result = await call(TODO_WRITE, context(FakeSandbox()), {"todos": todos(*statuses)})
    assert result.content == f"Todo list saved: {text}"
    assert result.meta["todos"] == todos(*statuses)


@pytest.mark.parametrize("statuses", [("completed", "pending"), ("in_progress", "in_progress", "pending")])
async def test_exactly_one_step_is_in_progress(statuses: tuple[str, ...]) -> None:
    """Neither two at once nor none in the middle of the work."""
    text = await refused(TODO_WRITE, context(FakeSandbox()), todos=todos(*statuses))
    assert "exactly one step must be in_progress" in text


@pytest.mark.parametrize("field", ["content", "activeForm"])
async def test_an_empty_text_is_refused(field: str) -> None:
    """A step has words."""
    [todo] = todos("pending")
    assert f"`todos[0].{field}`" in await refused(TODO_WRITE, context(FakeSandbox()), todos=[{**todo, field: ""}])
