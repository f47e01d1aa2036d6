"""Task: a sub-agent does a part of the work, with a conversation of its own, and reports once."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.agents import UNHEARD, AgentDesk, AgentReport, AgentTask
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import JsonObject, Subject, ToolResult

DEFAULT_TYPE = "general-purpose"
MAX_RESULT_CHARS = 32_000

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class TaskInput(ToolInput):
    """See prompts/tools/task.md."""

    description: Words = Field(description="The task in three to five words, for the person who watches.")
    prompt: Words = Field(description="All the sub-agent is told; it sees nothing of this conversation.")
    subagent_type: Words = Field(default=DEFAULT_TYPE, description="One of the types above.")
    model: Words | None = Field(default=None, description="Another model for it; leave out for the type's own.")
    run_in_background: bool = Field(
        default=False, description="Do not wait: you get its id at once, and its report later."
    )


def desk_of(ctx: ToolContext) -> AgentDesk:
    """The calling agent's sub-agents.

    Raises:
        ToolError: there are none where this runs.
    """
    if ctx.agents is None:
        raise ToolError("There are no sub-agents here. Do it yourself.")
    return ctx.agents


async def run(value: TaskInput, ctx: ToolContext) -> ToolResult:
    """Start the sub-agent, and give what it said last.

    Raises:
        ToolError: it was not started: no such type, or a limit.
        SandboxError: the sandbox is gone.
    """
    desk = desk_of(ctx)
    task = AgentTask(value.subagent_type, value.description, value.prompt, value.model)
    if value.run_in_background:
        return launched(desk.launch(task))
    return reported(await desk.run(task))


def launched(agent_id: str, status: Literal["async_launched", "message_queued"] = "async_launched") -> ToolResult:
    """What a call gives that does not wait."""
    said: JsonObject = {"status": status, "agent_id": agent_id}
    return ToolResult(json.dumps(said), meta=said)


def reported(report: AgentReport) -> ToolResult:
    """What a call gives that has waited; an error where the task did not come to its own end."""
    usage = report.usage
    meta: JsonObject = {
        "status": report.status,
        "agent_id": report.agent_id,
        "turns": report.turns,
        "tool_calls": report.calls,
        "total_tokens": usage.total_tokens,
        "duration_s": report.duration_s,
    }
    ended_well = report.status in ("done", "denied")
    lines = [report.text or ("(it said nothing)" if ended_well else "")]
    if not ended_well:
        said = " What it said last is above." if report.text else ""
        unheard = f" Note: {UNHEARD}." if report.unheard else ""
        lines.append(f"The sub-agent did not finish ({report.status}): {report.error}.{said}{unheard}")
    lines.append(
        f"(agent_id {report.agent_id}; turns {report.turns}, tool calls {report.calls}, tokens {usage.total_tokens:,}, "
        f"{report.duration_s:.1f} s. SendMessage with this id goes on with it.)"
    )
    return ToolResult("\n\n".join(line for line in lines if line), is_error=not ended_well, meta=meta)


def _subject(value: TaskInput, ctx: ToolContext) -> Subject:
    return Subject(summary=f"{value.subagent_type}: {value.description}", specifier=value.subagent_type)


TOOL = build_tool(
    name="Task",
    description=prompt("tools/task"),
    input_model=TaskInput,
    run=run,
    # The call itself changes nothing: every call of the sub-agent is judged by itself, and takes the write lane itself.
    read_only=True,
    parallel_safe=True,
    subject=_subject,
    timeout_s=None,
    max_result_chars=MAX_RESULT_CHARS,
)
