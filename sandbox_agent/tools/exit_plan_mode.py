"""ExitPlanMode: the plan goes to the person, and their yes ends plan mode."""

from __future__ import annotations

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import Subject, ToolResult

NEEDS_PERSON = "plan mode ends only when a person says yes to the plan."
MAX_PLAN_CHARS = 100_000


class ExitPlanModeInput(ToolInput):
    """See prompts/tools/exit_plan_mode.md."""

    plan: str | None = Field(
        default=None, max_length=MAX_PLAN_CHARS, description="The plan, in Markdown; it is what the person says yes to."
    )


async def run(value: ExitPlanModeInput, ctx: ToolContext) -> ToolResult:
    """End plan mode. That it runs at all means that a person has said yes.

    Raises:
        ToolError: it is not on.
    """
    if ctx.plan is None or not ctx.plan.planning:
        raise ToolError("Plan mode is not on: nothing is to be left. Go on with the work.")
    mode = ctx.plan.leave()
    return ToolResult(prompt("engine/plan_approved").format(mode=mode))


def _subject(value: ExitPlanModeInput, ctx: ToolContext) -> Subject:
    if ctx.plan is None or not ctx.plan.planning:
        return Subject(summary="plan mode is not on")
    first = (value.plan or "").strip().partition("\n")[0]
    return Subject(summary=first or "the plan is what was said above", needs_person=NEEDS_PERSON)


TOOL = build_tool(
    name="ExitPlanMode",
    description=prompt("tools/exit_plan_mode"),
    input_model=ExitPlanModeInput,
    run=run,
    # Itself it changes nothing, and in plan mode it must get as far as the question.
    read_only=True,
    subject=_subject,
)
