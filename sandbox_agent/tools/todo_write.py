"""TodoWrite: the model's own list of steps, replaced as a whole by each call and shown to the person."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import Subject, ToolResult

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
MAX_TODOS = 200


class Todo(ToolInput):
    """One step."""

    content: Text = Field(description="What is to be done, for example: Fix the failing test.")
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Text = Field(description="The same while it is being done, for example: Fixing the failing test.")


class TodoWriteInput(ToolInput):
    """See prompts/tools/todo_write.md."""

    todos: list[Todo] = Field(max_length=MAX_TODOS, description="The whole list, in order; it replaces the last one.")


async def run(value: TodoWriteInput, ctx: ToolContext) -> ToolResult:
    """Take the list over. It lives in the events of the run, nowhere else.

    Raises:
        ToolError: not exactly one step is in progress although the work is neither unbegun nor done.
    """
    counts = Counter(todo.status for todo in value.todos)
    active = counts["in_progress"]
    unbegun_or_done = max(counts["pending"], counts["completed"]) == len(value.todos)
    if active > 1 or (active == 0 and not unbegun_or_done):
        named = ", ".join(repr(todo.content) for todo in value.todos if todo.status == "in_progress") or "none"
        raise ToolError(
            f"The list was not taken over: exactly one step must be in_progress while some are pending and some done, "
            f"and here it is {active} ({named}). Mark the one step being worked on and send the whole list again."
        )
    done, left = counts["completed"], counts["pending"]
    text = f"Todo list saved: {done} done, {active} in progress, {left} to do."
    return ToolResult(text, meta={"todos": [todo.model_dump() for todo in value.todos]})


def _subject(value: TodoWriteInput, ctx: ToolContext) -> Subject:
    done = sum(todo.status == "completed" for todo in value.todos)
    return Subject(summary=f"{len(value.todos)} steps, {done} done")


TOOL = build_tool(
    name="TodoWrite",
    description=prompt("tools/todo_write"),
    input_model=TodoWriteInput,
    run=run,
    # It touches nothing but the list, so nobody needs to be asked; but two lists at once would be a race.
    read_only=True,
    subject=_subject,
)
