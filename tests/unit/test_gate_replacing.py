"""Whoever is asked about a call may put another input in its place: that is judged like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import finished, make_session, make_tool, of, play, results, use

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.events import PermissionDecided
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.base import ToolContext


@pytest.mark.parametrize(
    ("given", "ran", "said"),
    [
        ({"file_path": "/workspace/b"}, ["/workspace/b"], "/workspace/b"),
        ({"file_path": "/workspace/secret/b"}, [], "Edit(secret/**)"),
        ({"file_path": 5}, [], "cannot be used"),
    ],
)
async def test_another_input_runs_only_where_rules_let_it(
    tmp_path: Path, given: dict[str, Any], ran: list[str], said: str
) -> None:
    """What was asked about does not run, a deny rule stands, and the model is told what became of its call."""
    seen: list[str] = []

    async def body(value: Any, ctx: ToolContext) -> None:
        seen.append(value.file_path)

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(True, updated_input=given)

    turns = [{"tools": [use("Write", file_path="/workspace/a")]}, {"text": "done"}]
    write = make_tool("Write", body, edits=True)
    policy = load_policy(None, deny=["Edit(secret/**)"])
    async with make_session(turns, tmp_path, tools=[write], policy=policy, approver=approver) as session:
        events = await play(session)

    [decided] = of(events, PermissionDecided)
    assert seen == ran
    assert (decided.verdict, decided.answered_by) == ("allow" if ran else "deny", "callback")
    [result] = results(events)
    assert said in str(result)
    assert finished(events).status == ("done" if ran else "denied")
