"""Plan mode: entered by the model, left by a person's yes, told to everybody, and never a way to a looser mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import finished, make_session, make_tool, of, play, read_like, recorded, results, use

from sandbox_agent.engine import offered, planning, steering
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.past import load_past
from sandbox_agent.engine.planning import told_at_start
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import ModeChanged, PermissionDecided, UserMessage
from sandbox_agent.policy.load import load_policy, parse_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import context, refused
from sandbox_agent.tools.enter_plan_mode import TOOL as ENTER
from sandbox_agent.tools.exit_plan_mode import TOOL as EXIT
from sandbox_agent.types import Mode

DONE: dict[str, Any] = {"text": "done"}
WRITE = make_tool("Write", edits=True)
TOOLS = [ENTER, EXIT, WRITE, read_like("Read")]
WRITES = use("Write", file_path="/workspace/a")
PLAN = use("ExitPlanMode", plan="1. look\n2. mend", allowedPrompts=[{"tool": "Bash", "prompt": "all"}])


class Person:
    """Says yes, or no with this reason; keeps what it was asked."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return self.answers.pop(0)


def attached(session: Session, *, planned: bool = False) -> Session:
    offered.attach(session, ask=None, opens=None, planned=planned)
    return session


def changes(events: Any) -> list[tuple[str, str, str]]:
    return [(event.before, event.mode, event.by) for event in of(events, ModeChanged)]


async def test_a_plan_is_made_agreed_to_and_done(tmp_path: Path) -> None:
    """In between nothing may be changed, also behind the entering in one answer; the mode before comes back."""
    turns = [
        {"tools": [use("EnterPlanMode"), WRITES, use("Read")]},
        {"tools": [PLAN, WRITES]},
        DONE,
    ]
    person = Person(ApprovalAnswer(True))
    policy = load_policy(None, mode=Mode.ACCEPT_EDITS)
    async with make_session(turns, tmp_path, tools=TOOLS, policy=policy, approver=person) as session:
        events = await play(attached(session))

    told = results(events)
    assert told[0] == (prompt("engine/plan_mode"), False)
    assert told[1][0].startswith("Permission denied: plan mode: nothing may be changed")
    assert told[2] == ("Read", False)
    assert told[3] == (prompt("engine/plan_approved").format(mode="acceptEdits"), False)
    assert told[4] == ("Write", False)
    assert changes(events) == [("acceptEdits", "plan", "model"), ("plan", "acceptEdits", "person")]
    assert changes(recorded(tmp_path)) == changes(events)
    [question] = person.asked
    assert question.input["plan"] == "1. look\n2. mend"
    assert question.subject.summary == "1. look"
    assert question.suggested_rules == ()
    assert [event.mode for event in of(events, PermissionDecided)] == ["acceptEdits", *["plan"] * 3, "acceptEdits"]


async def test_a_no_goes_to_the_model_and_plan_mode_stays(tmp_path: Path) -> None:
    """A yes for the session is one for this plan only: the next one is asked about again."""
    turns = [
        {"tools": [use("EnterPlanMode")]},
        {"tools": [PLAN]},
        {"tools": [WRITES]},
        {"tools": [PLAN]},
        {"tools": [use("EnterPlanMode")]},
        {"tools": [PLAN]},
        DONE,
    ]
    no = ApprovalAnswer(False, reason="smaller steps")
    person = Person(no, ApprovalAnswer(True, "session"), no)
    policy = load_policy(None)
    async with make_session(turns, tmp_path, tools=TOOLS, policy=policy, approver=person) as session:
        events = await play(attached(session))
        assert session.mode is Mode.PLAN
        assert session.rights.allowed_inputs == set()
        assert session.policy is policy

    assert "the person said no: smaller steps" in results(events)[1][0]
    assert "plan mode" in results(events)[2][0]
    assert len(person.asked) == 3


@pytest.mark.parametrize("rule", ["ExitPlanMode", None])
async def test_no_rule_and_no_missing_person_ends_plan_mode(tmp_path: Path, rule: str | None) -> None:
    """Where nobody can be asked it is a denial; the plan can be the answer."""
    policy = load_policy(None, mode=Mode.PLAN, allow=[rule] if rule else [])
    async with make_session([{"tools": [PLAN]}, DONE], tmp_path, tools=TOOLS, policy=policy) as session:
        session.ctx.plan = planning.Planning(session)
        events = await play(session)
        assert session.mode is Mode.PLAN
    assert finished(events).status == "denied"
    assert "only when a person says yes to the plan. Nobody is there to ask" in results(events)[0][0]


@pytest.mark.parametrize(
    ("policy", "approver", "shown"),
    [
        (load_policy(None), Person(), True),
        (load_policy(None, mode=Mode.PLAN), Person(), True),
        (load_policy(None), None, False),
        (load_policy(None, mode=Mode.DONT_ASK), Person(), False),
    ],
)
async def test_they_are_shown_only_where_somebody_can_agree(
    tmp_path: Path, policy: Policy, approver: Any, shown: bool
) -> None:
    """Else a run without anybody would be caught in plan mode; a call all the same is told why."""
    turns = [{"tools": [use("ExitPlanMode")]}, DONE]
    async with make_session(turns, tmp_path, tools=TOOLS, policy=policy, approver=approver) as session:
        attached(session)
        assert [name for name in session.pool.names() if "Plan" in name] == ["EnterPlanMode", "ExitPlanMode"] * shown
        if not shown:
            told, is_error = results(await play(session))[0]
            assert is_error
            assert told == f"ExitPlanMode cannot be used here: {prompt('engine/nobody_approves')}"


async def test_a_session_that_starts_in_plan_mode_leaves_it_for_the_mode_that_asks(tmp_path: Path) -> None:
    """There is none before it. The model is told of it at the start."""
    policy = load_policy(None, mode=Mode.PLAN)
    person = Person(ApprovalAnswer(True))
    async with make_session(
        [{"tools": [PLAN]}, DONE], tmp_path, tools=TOOLS, policy=policy, approver=person
    ) as session:
        events = await play(attached(session))
    assert changes(events) == [("plan", "default", "person")]
    assert told_at_start(Mode.PLAN) == (prompt("engine/plan_mode"),)
    assert told_at_start(Mode.DEFAULT) == ()


async def test_a_lock_on_the_mode_stands(tmp_path: Path) -> None:
    """Where a policy locks the mode at plan there is nothing to leave, and no person's choice loosens it either."""
    policy = parse_policy("mode: plan\nlock: [mode]\n", "p.yaml")
    assert policy.loosest_mode is Mode.PLAN
    async with make_session([DONE], tmp_path, tools=TOOLS, policy=policy, approver=Person()) as session:
        attached(session)
        assert session.pool.get("ExitPlanMode") is None
        with pytest.raises(PolicyError):
            steering.set_mode(session, Mode.DEFAULT)
        assert session.mode is Mode.PLAN


async def test_the_model_is_told_when_the_person_begins_or_ends_planning(tmp_path: Path) -> None:
    """With the next request; of other modes it need not know. A plan that is agreed to then leads back to them."""
    person = Person(ApprovalAnswer(True))
    turns = [DONE, {"tools": [PLAN]}, DONE, DONE]
    async with make_session(turns, tmp_path, tools=TOOLS, policy=load_policy(None), approver=person) as session:
        attached(session)
        steering.set_mode(session, Mode.ACCEPT_EDITS)
        steering.set_mode(session, Mode.PLAN)
        events = await play(session)
        events += await play(session)
        assert session.mode is Mode.ACCEPT_EDITS
        steering.set_mode(session, Mode.PLAN)
        steering.set_mode(session, Mode.DEFAULT)
        events += await play(session)
    said = [str(block["text"]) for event in of(events, UserMessage) for block in event.content]
    assert said.count(prompt("engine/plan_mode")) == 2
    assert said.count(prompt("engine/plan_mode_off").format(mode="default")) == 1
    assert len(said) == 6
    assert ("plan", "acceptEdits", "person") in changes(events)


async def test_a_session_that_is_gone_on_with_is_still_in_plan_mode(tmp_path: Path) -> None:
    """If the model had entered it and nobody had ended it; then the mode of the new run comes back."""
    folder = tmp_path / ("a" * 20)
    folder.mkdir()
    enters = [{"tools": [use("EnterPlanMode")]}, DONE]
    async with make_session(enters, folder, tools=TOOLS, policy=load_policy(None), approver=Person()) as session:
        await play(attached(session))
    assert load_past(tmp_path, folder.name, tmp_path).planned

    person = Person(ApprovalAnswer(True))
    policy = load_policy(None, mode=Mode.ACCEPT_EDITS)
    leaves = [{"tools": [WRITES]}, {"tools": [PLAN]}, DONE]
    async with make_session(leaves, folder, tools=TOOLS, policy=policy, approver=person) as session:
        events = await play(attached(session, planned=True))
    assert results(events)[0][1]
    assert changes(events) == [("plan", "acceptEdits", "person")]
    assert not load_past(tmp_path, folder.name, tmp_path).planned


async def test_entering_twice_and_leaving_without_it_are_slips_of_the_model(tmp_path: Path) -> None:
    """Nobody is asked for them."""
    turns = [{"tools": [PLAN, use("EnterPlanMode"), use("EnterPlanMode")]}, DONE]
    person = Person()
    async with make_session(turns, tmp_path, tools=TOOLS, policy=load_policy(None), approver=person) as session:
        events = await play(attached(session))
    assert results(events)[0] == ("Plan mode is not on: nothing is to be left. Go on with the work.", True)
    assert results(events)[2] == ("Plan mode is on already.", True)
    assert person.asked == []


async def test_without_a_session_there_is_no_plan_mode() -> None:
    """A context of nobody's."""
    ctx = context(FakeSandbox())
    assert "There is no plan mode" in await refused(ENTER, ctx)
    assert "not on" in await refused(EXIT, ctx, plan="x" * 1000)
    assert "at most 100000 characters" in await refused(EXIT, ctx, plan="x" * 100_001)
