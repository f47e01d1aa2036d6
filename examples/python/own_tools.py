"""Tools, an approver and a hook of this program: they run here, in this process, and not in the container.

    python examples/python/own_tools.py

Needs a Docker Engine and no key: the model is a script.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

import sandbox_agent
from sandbox_agent import ApprovalAnswer, ApprovalRequest, HookAnswer, HookEvent, ProgramHook, Question, Reply
from sandbox_agent import ToolContext, Verdict
from sandbox_agent.errors import ToolError
from sandbox_agent.events import Notice, PermissionDecided, ToolFinished

MODEL = f"script:{Path(__file__).with_suffix('.yaml')}"
TICKETS = {7: "The file notes.txt is empty, it should say what the project is for."}


class Ticket(sandbox_agent.ToolInput):
    number: int = Field(description="The number of the ticket.")


async def look_up(given: Ticket, ctx: ToolContext) -> str:
    if given.number not in TICKETS:
        raise ToolError(f"There is no ticket {given.number}; there are {', '.join(map(str, TICKETS))}.")
    return TICKETS[given.number]


async def close(given: Ticket, ctx: ToolContext) -> str:
    # What touches the folder goes through the sandbox: the tool sees what the agent has done there.
    lines = await ctx.sandbox.exec(["wc", "-l", "/workspace/notes.txt"])
    del TICKETS[given.number]
    return f"Closed, with {lines.stdout.split()[0].decode()} line in notes.txt."


TOOLS = [
    sandbox_agent.build_tool(
        name="look_up_ticket",
        description="The text of a ticket of our tracker.",
        input_model=Ticket,
        run=look_up,
        read_only=True,
    ),
    sandbox_agent.build_tool(
        name="close_ticket",
        description="Closes a ticket of our tracker. Only when it is done.",
        input_model=Ticket,
        run=close,
    ),
]


async def approve(request: ApprovalRequest) -> ApprovalAnswer:
    """Asked where the policy asks: for every tool that does more than read and that no rule allows."""
    if request.tool == "close_ticket" and request.input["number"] == 7:
        return ApprovalAnswer(True)
    return ApprovalAnswer(False, reason="only ticket 7 is yours")


async def answer(questions: Sequence[Question], *, agent_id: str) -> list[Reply]:
    """Answers what the model wants to know: labels of the choices, or words of one's own."""
    return [Reply(labels=(question.choices[0].label,)) for question in questions]


async def short_notes(told: dict[str, Any]) -> HookAnswer | None:
    """A hook may block or change a call; None is no opinion."""
    if told["tool_name"] == "Write" and len(told["tool_input"]["content"]) > 1000:
        return HookAnswer(Verdict.DENY, "Write less than 1,000 characters.")
    return None


async def main(folder: str) -> int:
    run = sandbox_agent.run(
        "Do what ticket 7 says.",
        workspace=folder,
        model=MODEL,
        mode="acceptEdits",
        tools=TOOLS,
        approver=approve,
        answerer=answer,
        hooks=[ProgramHook("short-notes", HookEvent.PRE_TOOL_USE, short_notes)],
    )
    async for event in run:
        match event:
            case Notice(text=text):
                print(f"- {text}")
            case PermissionDecided(tool=tool, verdict=verdict, answered_by=str(who)):
                print(f"? {tool}: {verdict}, says the {who}")
            case ToolFinished(tool=tool, content=content):
                print(f"* {tool}: {content}")
    print(run.result.text)
    return 0 if run.result.ok and not TICKETS else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "README.md").write_text("A project.\n")
        code = asyncio.run(main(folder))
    sys.exit(code)
