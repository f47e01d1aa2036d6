"""Tools that need somebody to ask, or a network: shown only where they can work, and judged like all others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from engine_session import finished, make_session, make_tool, of, play, results, use

from sandbox_agent.engine import offered
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.events import CallEffects, PermissionDecided
from sandbox_agent.policy.load import load_policy
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramOutput
from sandbox_agent.tools.ask_user_question import TOOL as ASK
from sandbox_agent.tools.questions import Question, Reply
from sandbox_agent.tools.web_fetch import TOOL as FETCH
from sandbox_agent.types import Mode

DONE: dict[str, Any] = {"text": "done"}
QUESTION = use(
    "AskUserQuestion",
    questions=[{"question": "Which?", "header": "Which", "options": [{"label": "a"}, {"label": "b"}]}],
)
FETCHES = use("WebFetch", url="https://docs.test/x", prompt="")


def everything_open(host: str, port: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("mode", "ask", "opens", "shown"),
    [
        (Mode.DEFAULT, True, True, ("AskUserQuestion", "WebFetch")),
        (Mode.DONT_ASK, True, True, ("WebFetch",)),
        (Mode.DEFAULT, False, False, ()),
    ],
)
async def test_what_cannot_work_is_not_shown_and_says_why(
    tmp_path: Path, mode: Mode, ask: bool, opens: bool, shown: tuple[str, ...]
) -> None:
    """Without anybody, without a network; such a call is a slip of the model's, not a denial."""

    async def answer(questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply]:
        raise AssertionError

    turns = [{"tools": [call for call in (QUESTION, FETCHES) if call["name"] not in shown]}, DONE]
    turns = turns if turns[0]["tools"] else [DONE]
    policy = load_policy(None, mode=mode)
    async with make_session(turns, tmp_path, tools=[ASK, FETCH, make_tool("Bash")], policy=policy) as session:
        offered.attach(session, ask=answer if ask else None, opens=everything_open if opens else None, planned=False)
        assert {*session.pool.names()} == {"Bash", *shown}
        events = await play(session)
    why = {"AskUserQuestion": prompt("engine/nobody_to_ask"), "WebFetch": prompt("engine/network_closed")}
    wanted = [(f"{name} cannot be used here: {text}", True) for name, text in why.items() if name not in shown]
    assert results(events) == wanted
    assert finished(events).status == "done"


async def test_a_question_of_the_model_needs_no_permission_and_waits_for_its_turn(tmp_path: Path) -> None:
    """While the person is asked anything else, it is not put to them."""
    at_once: list[bool] = []

    async def answer(questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply]:
        at_once.append(session.rights.asking.locked())
        return [Reply(("a",))]

    turns = [{"tools": [QUESTION]}, DONE]
    async with make_session(turns, tmp_path, tools=[ASK], policy=load_policy(None)) as session:
        offered.attach(session, ask=answer, opens=None, planned=False)
        async with anyio.create_task_group() as group, session.rights.asking:
            events: list[Any] = []

            async def run() -> None:
                events.extend(await play(session))

            group.start_soon(run)
            with anyio.fail_after(20):
                while not session.rights.asking.statistics().tasks_waiting:
                    await anyio.lowlevel.checkpoint()
            assert at_once == []
    assert at_once == [True]
    assert results(events) == [("The person answered.\n- Which: Which?\n  a", False)]
    assert [(one.verdict, one.asked) for one in of(events, PermissionDecided)] == [("allow", False)]


async def test_a_question_can_be_interrupted(tmp_path: Path) -> None:
    """As everything that waits for a person."""

    async def answer(questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply]:
        session.interrupt()
        await anyio.sleep_forever()
        raise AssertionError

    async with make_session([{"tools": [QUESTION]}, DONE], tmp_path, tools=[ASK], policy=load_policy(None)) as session:
        offered.attach(session, ask=answer, opens=None, planned=False)
        events = await play(session)
    assert finished(events).status == "interrupted"
    assert not session.rights.asking.locked()


async def test_a_fetch_is_asked_about_by_its_host_until_a_rule_names_it(tmp_path: Path) -> None:
    """Always keeps the rule for this host; its hosts and refusals are the call's."""
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return ApprovalAnswer(True, "session")

    def python3(_: Any) -> ProgramOutput:
        session.effects.asked("docs.test:443", "docs.test:443 is not in sandbox.allow_hosts")
        return ProgramOutput(b'{"outcome": "refused", "reason": "docs.test:443 is not in sandbox.allow_hosts"}\n')

    box = FakeSandbox(programs={"python3": python3})
    other = use("WebFetch", url="https://other.test/")
    turns = [{"tools": [FETCHES]}, {"tools": [FETCHES]}, {"tools": [other]}, DONE]
    policy = load_policy(None)
    async with make_session(
        turns, tmp_path, tools=[FETCH, make_tool("Write")], policy=policy, approver=approver, sandbox=box
    ) as session:
        offered.attach(session, ask=None, opens=everything_open, planned=False)
        events = await play(session)
    assert [(one.subject.summary, one.suggested_rules) for one in asked] == [
        ("https://docs.test/x", ("WebFetch(domain:docs.test)",)),
        ("https://other.test/", ("WebFetch(domain:other.test)",)),
    ]
    text, is_error = results(events)[0]
    assert is_error
    assert "Only the person can open it" in text
    assert [one.hosts for one in of(events, CallEffects)] == [("docs.test:443",)] * 3
