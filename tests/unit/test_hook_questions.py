"""Hooks of questions: a command may only tighten; a function of the embedding program may answer for a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_session import make_tool, of, play, results, use
from hook_rig import ASKED, ECHO, PRE, TURNS, hook, hooked, saying

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.hook_answers import HookAnswer
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.events import HookRan, PermissionDecided, ToolStarted
from sandbox_agent.policy.hooks import HookEvent, parse_matcher
from sandbox_agent.policy.load import load_policy
from sandbox_agent.types import JsonObject, Mode, Verdict


@pytest.mark.parametrize(
    ("program", "verdict"),
    [(saying(), "allow"), (saying(exit_code=2, stderr="no"), "deny"), (saying(exit_code=1), "deny")],
)
async def test_a_question_goes_to_its_hooks_first(tmp_path: Path, program: Any, verdict: str) -> None:
    """They may say no in place of the person; what is not asked does not reach them."""

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(True)

    policy = load_policy(None, allow=["Other"])
    turns = [{"tools": [use("Other")]}, *TURNS]
    async with hooked(
        turns,
        tmp_path,
        [hook(ASKED, "h")],
        {"h": program},
        tools=[ECHO, make_tool("Other")],
        policy=policy,
        approver=approver,
    ) as session:
        events = await play(session)

    [ran] = of(events, HookRan)
    assert (ran.event, ran.tool) == ("permission_request", "Echo")
    assert [decided.verdict for decided in of(events, PermissionDecided)] == ["allow", verdict]


def answering(answer: Any, told: list[Any] | None = None) -> Callable[[JsonObject], Any]:
    async def function(given: JsonObject) -> Any:
        if told is not None:
            told.append(json.loads(json.dumps(given)))
        given.get("tool_input", {})["name"] = "changed behind our back"
        if isinstance(answer, Exception):
            raise answer
        return answer

    return function


@pytest.mark.parametrize("event", [PRE, ASKED])
async def test_a_function_of_the_program_may_answer_a_question(tmp_path: Path, event: HookEvent) -> None:
    """As the approver would, also where nobody else is there; a deny rule stands, and its copy is its own."""
    yes = ProgramHook("mine", event, answering(HookAnswer(Verdict.ALLOW, "it is fine")))
    for deny, ran in (((), [{"name": "one"}]), (("Echo",), [])):
        folder = tmp_path / str(len(deny))
        folder.mkdir()
        async with hooked(TURNS, folder, [yes], tools=[ECHO], policy=load_policy(None, deny=deny)) as session:
            events = await play(session)

        assert [started.input for started in of(events, ToolStarted)] == ran
    assert (tmp_path / "0" / "events.jsonl").read_text().count('"answered_by":"hook"') == 1


async def test_an_ask_of_another_hook_stands_against_a_function_that_allows(tmp_path: Path) -> None:
    """The strictest word holds, whoever says it."""
    yes = ProgramHook("mine", PRE, answering(HookAnswer(Verdict.ALLOW)))
    programs = {"asks": saying({"decision": "ask"})}
    async with hooked(TURNS, tmp_path, [yes, hook(PRE, "asks")], programs, tools=[ECHO]) as session:
        events = await play(session)

    assert of(events, ToolStarted) == []


async def test_no_function_answers_where_the_mode_denies_questions(tmp_path: Path) -> None:
    """dontAsk means that nobody is."""
    yes = ProgramHook("mine", ASKED, answering(HookAnswer(Verdict.ALLOW)))
    asks = hook(PRE, "asks")
    async with hooked(TURNS, tmp_path, [yes, asks], {"asks": saying({"decision": "ask"})}, tools=[ECHO]) as session:
        session.mode = Mode.DONT_ASK
        events = await play(session)

    assert of(events, ToolStarted) == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [(RuntimeError("oh"), "raised RuntimeError: oh"), ("yes", "gave a str, not a HookAnswer")],
)
async def test_a_function_that_fails_denies(tmp_path: Path, answer: Any, fault: str) -> None:
    """An exception has not agreed, and neither has what is no answer."""
    broken = ProgramHook("mine", PRE, answering(answer), parse_matcher("Echo", PRE))
    async with hooked(TURNS, tmp_path, [broken], tools=[ECHO]) as session:
        events = await play(session)

    assert fault in results(events)[0][0]
    assert of(events, ToolStarted) == []
