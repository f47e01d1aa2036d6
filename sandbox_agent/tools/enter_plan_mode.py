"""EnterPlanMode: from here on the agent looks and plans, and nothing may be changed until a person likes the plan."""

from __future__ import annotations

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import Subject, ToolResult


class EnterPlanModeInput(ToolInput):
    """See prompts/tools/enter_plan_mode.md."""


async def run(value: EnterPlanModeInput, ctx: ToolContext) -> ToolResult:
    """Narrow the mode.

    Raises:
        ToolError: there is no plan mode for this agent, or it is on already.
    """
    if ctx.plan is None:
        raise ToolError("There is no plan mode for you. Go on without it.")
    if ctx.plan.planning:
        raise ToolError("Plan mode is on already.")
    ctx.plan.enter()
    return ToolResult(prompt("engine/plan_mode"))


def _subject(value: EnterPlanModeInput, ctx: ToolContext) -> Subject:
    return Subject(summary="nothing may be changed from here on")


TOOL = build_tool(
    name="EnterPlanMode",
    description=prompt("tools/enter_plan_mode"),
    input_model=EnterPlanModeInput,
    run=run,
    # It only takes away what may be done. Not beside other calls: those behind it are judged by the new mode.
    read_only=True,
    subject=_subject,
)
