"""What the record says of decisions: the question, who answered, for how long, and the rules that came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import make_session, make_tool, of, play, use

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.requests import digest
from sandbox_agent.events import PermissionAsked, PermissionDecided
from sandbox_agent.policy.load import load_policy

WRITE = make_tool("Write", edits=True)
CALL = use("Write", file_path="/workspace/a")
DONE: dict[str, Any] = {"text": "ok"}


async def decided(folder: Path, answer: ApprovalAnswer) -> tuple[list[PermissionAsked], PermissionDecided]:
    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        return answer

    turns = [{"tools": [CALL]}, DONE]
    async with make_session(turns, folder, tools=[WRITE], policy=load_policy(None), approver=approver) as session:
        events = await play(session)
    [decision] = of(events, PermissionDecided)
    return of(events, PermissionAsked), decision


async def test_a_question_is_recorded_before_its_answer(tmp_path: Path) -> None:
    """With what it was about, why it was asked, and the rule that was offered."""
    [asked], decision = await decided(tmp_path, ApprovalAnswer(True, by="person"))

    assert (asked.tool, asked.input_sha256, asked.suggested_rules) == (
        "Write",
        digest("Write", CALL["input"]),
        ("Edit(/a)",),
    )
    assert asked.reason
    assert asked.call_id == decision.call_id


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ApprovalAnswer(True, by="person"), ("allow", "person", "once", None, ())),
        (ApprovalAnswer(True, scope="session"), ("allow", "callback", "session", None, ("Edit(/a)",))),
        (ApprovalAnswer(True, scope="always", by="person"), ("allow", "person", "always", None, ("Edit(/a)",))),
        (ApprovalAnswer(False, reason="not that", by="person"), ("deny", "person", None, "not that", ())),
    ],
)
async def test_a_decision_says_who_answered_what(
    tmp_path: Path, answer: ApprovalAnswer, said: tuple[object, ...]
) -> None:
    """The scope only of a yes, the words as they were given, and the rule that a yes for longer added."""
    _, decision = await decided(tmp_path, answer)
    assert said == (decision.verdict, decision.answered_by, decision.scope, decision.answer, decision.saved_rules)
    assert (decision.asked, decision.mode) == (True, "default")


async def test_what_nobody_was_asked_has_no_answer(tmp_path: Path) -> None:
    """A denial for want of a person is no answer of a person."""
    turns = [{"tools": [CALL]}, DONE]
    async with make_session(turns, tmp_path, tools=[WRITE], policy=load_policy(None)) as session:
        events = await play(session)
    [decision] = of(events, PermissionDecided)
    assert (decision.asked, decision.answered_by, decision.verdict) == (False, None, "deny")
    assert of(events, PermissionAsked) == []
