"""Asking at the gate: what is shown is what runs, how long a yes holds, and that only a clear yes is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import finished, make_session, make_tool, of, play, results, use

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, Approver
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import Notice, PermissionDecided, ToolStarted
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.shell import analyse
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import Subject, ToolResult

DONE = {"text": "done"}
WRITE = make_tool("Write", edits=True)
CALL = use("Write", file_path="/workspace/a")


def answering(answer: Any, asked: list[ApprovalRequest]) -> Approver:
    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return answer  # type: ignore[no-any-return]

    return approver


class Command(ToolInput):
    """What a shell is given."""

    command: str


async def _enter(value: Command, ctx: ToolContext) -> ToolResult:
    if value.command.startswith("cd "):
        ctx.cwd = f"/workspace/{value.command[3:]}"
    return ToolResult("ok")


BASH = build_tool(
    name="Bash",
    description="odd",
    input_model=Command,
    run=_enter,
    subject=lambda value, ctx: Subject(
        value.command, paths=analyse(value.command).accesses(ctx.cwd), command=value.command, cwd=ctx.cwd
    ),
)
"""A shell that only moves."""


class Listed(ToolInput):
    """An input that can be changed although it is frozen."""

    names: list[str]


async def test_what_runs_is_what_was_judged_and_shown(tmp_path: Path) -> None:
    """An approver cannot change it through what it is shown, and what is changed otherwise meanwhile is not run."""
    ran: list[list[str]] = []
    seen: list[Listed] = []

    async def run(value: Listed, ctx: ToolContext) -> ToolResult:
        ran.append(value.names)
        return ToolResult("ok")

    def subject(value: Listed, ctx: ToolContext) -> Subject:
        seen.append(value)
        return Subject("names")

    async def meddling(request: ApprovalRequest) -> ApprovalAnswer:
        request.input["names"].append("shown")
        if len(seen) == 2:
            seen[1].names.append("parsed")
        return ApprovalAnswer(True)

    tool = build_tool(name="Odd", description="odd", input_model=Listed, run=run, subject=subject)
    turns = [{"tools": [use("Odd", names=["a"])]}, {"tools": [use("Odd", names=["b"])]}, DONE]
    async with make_session(turns, tmp_path, tools=[tool], policy=load_policy(None), approver=meddling) as session:
        events = await play(session)

    assert ran == [["a"]]
    assert [is_error for _, is_error in results(events)] == [False, True]
    assert "changed after it was allowed" in results(events)[1][0]


@pytest.mark.parametrize("answer", [True, None, "yes", ApprovalAnswer("no")])  # type: ignore[arg-type]
async def test_only_a_clear_yes_is_a_yes(tmp_path: Path, answer: Any) -> None:
    """Whatever else a callback returns."""

    turns = [{"tools": [CALL]}, DONE]
    approver = answering(answer, [])
    async with make_session(turns, tmp_path, tools=[WRITE], policy=load_policy(None), approver=approver) as session:
        events = await play(session)
    assert of(events, ToolStarted) == []
    assert finished(events).status == "denied"


async def test_always_saves_a_rule_for_every_part_and_a_fault_of_saving_is_told(tmp_path: Path) -> None:
    """They hold for the session either way."""
    asked: list[ApprovalRequest] = []
    saved: list[str] = []

    def save(rule: str) -> None:
        if rule == "Bash(npm ci)":
            raise PolicyError("no space")
        saved.append(rule)

    call = use("Bash", command="make all && npm ci | tee out")
    async with make_session(
        [{"tools": [call]}, {"tools": [call]}, DONE],
        tmp_path,
        tools=[BASH],
        policy=load_policy(None),
        approver=answering(ApprovalAnswer(True, "always"), asked),
    ) as session:
        session.save_rule = save
        events = await play(session)

    assert [request.suggested_rules for request in asked] == [("Bash(make all)", "Bash(npm ci)", "Bash(tee out)")]
    assert saved == ["Bash(make all)", "Bash(tee out)"]
    assert [event.text for event in of(events, Notice)] == ["Bash(npm ci) holds for this session only: no space"]
    assert len(of(events, ToolStarted)) == 2


async def test_a_yes_for_the_session_where_no_rule_fits_is_for_the_same_call_in_the_same_folder(tmp_path: Path) -> None:
    """`rm $x` is another command in another folder."""
    asked: list[ApprovalRequest] = []
    here, moved = use("Bash", command="rm $x"), use("Bash", command="cd sub")
    async with make_session(
        [{"tools": [here]}, {"tools": [here]}, {"tools": [moved]}, {"tools": [here]}, DONE],
        tmp_path,
        tools=[BASH],
        policy=load_policy(None),
        approver=answering(ApprovalAnswer(True, "session"), asked),
    ) as session:
        await play(session)
    assert [request.subject.cwd for request in asked] == ["/workspace", "/workspace/sub"]


async def test_an_interrupted_question_is_a_no_in_the_record(tmp_path: Path) -> None:
    """Ctrl-C at the question: the call does not run, and the record says why."""

    async def waiting(_: ApprovalRequest) -> ApprovalAnswer:
        sessions[0].interrupt()
        await anyio.sleep_forever()
        raise AssertionError

    sessions: list[Session] = []
    async with make_session(
        [{"tools": [CALL]}, DONE], tmp_path, tools=[WRITE], policy=load_policy(None), approver=waiting
    ) as session:
        sessions.append(session)
        events = await play(session)

    [decided] = of(events, PermissionDecided)
    assert (decided.verdict, decided.reason) == ("deny", "the question was interrupted.")
    assert of(events, ToolStarted) == []
    assert finished(events).status == "interrupted"


@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("npm ci", "to allow it: --allow 'Bash(npm ci)', or the same in the policy file."),
        ("make a && ls | tee b", "to allow it: --allow 'Bash(make a)' --allow 'Bash(tee b)', or the same"),
        ("make $(cat targets)", "no rule can allow it as it is."),
        ("make " + "a" * 400, "`sandbox-agent policy explain` names the narrowest."),
    ],
)
async def test_a_question_that_nobody_hears_names_no_wider_rule_than_it_takes(
    tmp_path: Path, command: str, way: str
) -> None:
    """Never the bare tool: who pastes the advice allows this call and no other."""
    turns = [{"tools": [use("Bash", command=command)]}, DONE]
    async with make_session(turns, tmp_path, tools=[BASH], policy=load_policy(None)) as session:
        events = await play(session)

    (decided,) = of(events, PermissionDecided)
    assert f"Nobody is there to ask: {way}" in decided.reason or decided.reason.endswith(way)
    assert "--allow Bash" not in decided.reason
