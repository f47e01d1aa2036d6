"""One gate: no call of a tool gets past it, whichever way it came. A new way to come is a new entry in `WAYS`."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine_session import make_session, make_tool, of, play, use
from hook_rig import PRE, changing, hook, hooked

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.shell_jobs import ShellDesk
from sandbox_agent.events import Event, ToolStarted
from sandbox_agent.policy.load import load_policy
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.types import JsonObject

PACKAGE = Path(__file__).parents[2] / "sandbox_agent"
DONE = {"text": "done"}
ALL_ASKED = load_policy(None, ask=["Alone", "Beside", "mcp__a__b"])
TOOLS = [
    make_tool("Alone"),
    make_tool("Beside", parallel_safe=True, read_only=True),
    make_tool("mcp__a__b", source="a"),
]


@dataclass
class Counting:
    """Says yes to everything, and keeps what it was shown."""

    asked: list[ApprovalRequest] = field(default_factory=list)

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(True)

    def shown(self) -> list[tuple[str, JsonObject]]:
        return [(request.call_id, request.input) for request in self.asked]


async def main_agent(folder: Path, approver: Counting) -> list[Event]:
    """Alone, beside others, and from a server; several turns."""
    turns = [
        {"tools": [use("Alone", name="1"), use("Beside", name="2"), use("Beside", name="3"), use("Alone", name="4")]},
        {"tools": [use("mcp__a__b", name="5")]},
        DONE,
    ]
    async with make_session(turns, folder, tools=TOOLS, policy=ALL_ASKED, approver=approver) as session:
        return await play(session)


async def rewritten_by_a_hook(folder: Path, approver: Counting) -> list[Event]:
    """What is asked about is what the hook put in place."""
    turns = [{"tools": [use("Alone", name="1"), use("Beside", name="2")]}, DONE]
    programs = {"change": changing(lambda given: {**given, "name": given["name"] + " changed"})}
    async with hooked(
        turns, folder, [hook(PRE, "change")], programs, tools=TOOLS, policy=ALL_ASKED, approver=approver
    ) as session:
        return await play(session)


async def in_the_background(folder: Path, approver: Counting) -> list[Event]:
    """A command that runs on after its call is judged as one that does not, before it starts; so is each after it."""
    command = "touch made"
    turns = [
        {"tools": [use("Bash", command=command), use("Bash", command=command, run_in_background=True)]},
        DONE,
        DONE,
    ]
    policy = load_policy(None, ask=["Bash"])
    async with make_session(turns, folder, tools=[BASH], policy=policy, approver=approver) as session:
        session.ctx.jobs = ShellDesk(session)
        return await play(session)


WAYS: dict[str, tuple[Callable[[Path, Counting], Awaitable[list[Event]]], int]] = {
    "main agent": (main_agent, 5),
    "rewritten by a hook": (rewritten_by_a_hook, 2),
    "in the background": (in_the_background, 2),
}
"""The way, and how many calls come by it."""


@pytest.mark.parametrize("way", list(WAYS))
async def test_every_call_passes_the_gate_whichever_way_it_comes(tmp_path: Path, way: str) -> None:
    """As many questions as calls that ran, in their order, each about exactly the input that ran."""
    approver = Counting()
    come, calls = WAYS[way]
    started = of(await come(tmp_path, approver), ToolStarted)

    assert len(started) == calls
    assert approver.shown() == [(event.call_id, event.input) for event in started]
    if way == "rewritten by a hook":
        assert [shown["name"] for _, shown in approver.shown()] == ["1 changed", "2 changed"]


def places(word: str, taken: Callable[[ast.expr], bool]) -> list[str]:
    """`file:function` of every expression in the package that is `taken`; files without the word are not looked at."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if word not in text:
            continue
        tree = ast.parse(text)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and taken(node):
                around = [one for one in functions if one.lineno <= node.lineno <= (one.end_lineno or 0)]
                name = max(around, key=lambda one: one.lineno).name if around else ""
                found.append(f"{path.relative_to(PACKAGE)}:{name}")
    return found


def runs_a_tool(node: ast.expr) -> bool:
    """It takes the `run` of anything that is called tool."""
    if not isinstance(node, ast.Attribute) or node.attr != "run":
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return str(name).lower().endswith("tool")


def test_a_tool_is_run_in_one_place_and_only_what_the_gate_judged() -> None:
    """`testing` plays single tools for the tests of tools; no run of an agent comes there."""
    runs = [place for place in places("tool.run", runs_a_tool) if not place.startswith("testing/")]
    assert runs == ["engine/calls.py:_run_tool"]
    called = places("_run_tool", lambda node: isinstance(node, ast.Name) and node.id == "_run_tool")
    assert called == ["engine/calls.py:_run_one"]
    ways = places("_run_one", lambda node: isinstance(node, ast.Name) and node.id == "_run_one")
    assert ways == ["engine/calls.py:run_early", "engine/calls.py:run_one"]
    early = places("run_early", lambda node: isinstance(node, ast.Attribute) and node.attr == "run_early")
    assert early == ["engine/early.py:_run"]


def test_a_job_is_started_by_the_call_that_was_judged() -> None:
    """Commands in the background are run by what Bash gave to the desk, and by nothing else."""
    starts = places("start_shell", lambda node: isinstance(node, ast.Attribute) and node.attr == "start_shell")
    assert starts == ["tools/bash.py:_start"]


@pytest.mark.parametrize("command", ["git push", "true && git push origin main", "rm -rf build", "ls", "cat x > y"])
def test_the_background_changes_no_verdict(command: str) -> None:
    """What a call is about, and what it claims, are the same with and without."""
    ctx = ToolContext(FakeSandbox(), "/home/me/project")
    front = BASH.input_model.model_validate({"command": command})
    behind = BASH.input_model.model_validate({"command": command, "run_in_background": True})

    assert BASH.subject(behind, ctx) == BASH.subject(front, ctx)
    claims = [(BASH.read_only(one), BASH.parallel_safe(one), BASH.edits(one)) for one in (front, behind)]
    assert claims[0] == claims[1]
