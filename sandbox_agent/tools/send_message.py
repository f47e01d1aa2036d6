"""SendMessage: a further word to a sub-agent, by its id: it goes on where it ended, or hears it while it runs."""

from __future__ import annotations

from pydantic import Field

from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.task import MAX_RESULT_CHARS, Words, desk_of, launched, reported
from sandbox_agent.types import Subject, ToolResult


class SendMessageInput(ToolInput):
    """See prompts/tools/send_message.md."""

    agent_id: Words = Field(alias="to", description="The id that Task gave.")
    message: Words = Field(description="What to tell it; it remembers all of its own work.")
    run_in_background: bool = Field(default=False, description="Do not wait for its answer; it comes later.")


async def run(value: SendMessageInput, ctx: ToolContext) -> ToolResult:
    """Go on with a sub-agent.

    Raises:
        ToolError: this agent has started none of that id.
        SandboxError: the sandbox is gone.
    """
    desk = desk_of(ctx)
    if value.run_in_background:
        goes_on = desk.go_on_behind(value.agent_id, value.message)
        return launched(value.agent_id, "async_launched" if goes_on else "message_queued")
    report = await desk.go_on(value.agent_id, value.message)
    return reported(report) if report is not None else launched(value.agent_id, "message_queued")


def _subject(value: SendMessageInput, ctx: ToolContext) -> Subject:
    return Subject(summary=f"{value.agent_id}: {value.message}")


TOOL = build_tool(
    name="SendMessage",
    description=prompt("tools/send_message"),
    input_model=SendMessageInput,
    run=run,
    read_only=True,
    parallel_safe=True,
    subject=_subject,
    timeout_s=None,
    max_result_chars=MAX_RESULT_CHARS,
)
