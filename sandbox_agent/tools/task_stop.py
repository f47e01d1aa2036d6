"""TaskStop: end a job of this agent, with everything it has started."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.jobs import JobState
from sandbox_agent.tools.task_output import desk_of, show, state_line
from sandbox_agent.types import Subject, ToolResult

SHOWN_CHARS = 2_000
"""The end of its output."""

STOPPED = "by TaskStop"


class TaskStopInput(ToolInput):
    """See prompts/tools/task_stop.md."""

    task_id: str | None = Field(default=None, description="Of the job.")
    shell_id: str | None = Field(default=None, description="The same, by its older name.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.task_id is None) == (self.shell_id is None):
            raise ValueError("give the id of the job as task_id, once")
        return self

    @property
    def wanted(self) -> str:
        """The id, whichever name it came by."""
        return self.task_id or self.shell_id or ""


async def run(value: TaskStopInput, ctx: ToolContext) -> ToolResult:
    """Stop it and wait for its end.

    Raises:
        ToolError: the agent has no such job, or it has ended already.
    """
    job = desk_of(ctx).get(value.wanted)
    if not job.running:
        raise ToolError(f"There is nothing to stop: {state_line(job)}. TaskOutput shows its output.")
    with job.watched():
        await job.stop(STOPPED)
        shown = await show(job, None)
        tail = shown.text[-SHOWN_CHARS:]
        by_itself = "" if job.state is JobState.KILLED else " It came to that before it could be stopped."
        text = f"{tail}\n[{state_line(job)}.{by_itself}]".lstrip("\n")
        return ToolResult(text, meta={"job_id": job.id, "state": job.state.value})


def _subject(value: TaskStopInput, ctx: ToolContext) -> Subject:
    return Subject(summary=value.wanted)


TOOL = build_tool(
    name="TaskStop",
    description=prompt("tools/task_stop"),
    input_model=TaskStopInput,
    run=run,
    # It touches nothing but what this agent has started itself, so nobody needs to be asked.
    read_only=True,
    subject=_subject,
)
