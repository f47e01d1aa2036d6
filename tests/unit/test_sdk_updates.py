"""What comes with a program's yes, and with its hooks: rules for the session, and what must never widen anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import finished, make_session, make_tool, play, recorded, results, use
from sdk_wire_rig import connected, state_of

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import Notice
from sandbox_agent.frontends.sdk.asking import Callback
from sandbox_agent.frontends.sdk.hook_output import checked
from sandbox_agent.frontends.sdk.hooks import SdkHooks, read_hooks
from sandbox_agent.frontends.sdk.incoming import listen
from sandbox_agent.frontends.sdk.questions import CallbackQuestions
from sandbox_agent.frontends.sdk.updates import take
from sandbox_agent.frontends.sdk.wire import NoAnswerError
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.questions import Choice, Question, Reply
from sandbox_agent.types import Decision, Mode, Subject, Verdict

SAYS = [{"text": "done"}]


def rules(kind: str, behavior: str, *given: tuple[str, str | None]) -> dict[str, Any]:
    """An update as the package writes it."""
    named = [{"toolName": tool} | ({"ruleContent": inner} if inner else {}) for tool, inner in given]
    return {"type": kind, "rules": named, "behavior": behavior, "destination": "session"}


def there(session: Session, verdict: Verdict) -> list[str]:
    """The rules of the program."""
    return [rule.text for rule in session.policy.rules.of(verdict) if rule.location == "the program"]


async def test_rules_are_added_replaced_and_taken_back(tmp_path: Path) -> None:
    """Of each kind; none but the program's own is ever taken away, and the record says what came and went."""
    policy = load_policy(None, deny=["Bash(rm:*)"])
    async with make_session(SAYS, tmp_path, policy=policy) as session:
        make, test, push = ("Bash", "make:*"), ("Bash", "pytest:*"), ("Bash", "git push:*")
        take(session, [rules("addRules", "allow", make), rules("addRules", "ask", ("Agent", None))])
        take(session, [rules("addRules", "deny", push)])
        assert there(session, Verdict.ALLOW) == ["Bash(make:*)"]
        assert there(session, Verdict.ASK) == ["Task"]
        assert there(session, Verdict.DENY) == ["Bash(git push:*)"]
        take(session, [rules("replaceRules", "allow", test), {"type": "setMode", "mode": "acceptEdits"}])
        assert there(session, Verdict.ALLOW) == ["Bash(pytest:*)"]
        assert session.mode is Mode.ACCEPT_EDITS
        take(session, [rules("removeRules", "deny", push, ("Bash", "rm:*"))])
        assert there(session, Verdict.DENY) == []
        assert "Bash(rm:*)" in [rule.text for rule in session.policy.rules.deny]
    said = [event.text for event in recorded(tmp_path) if isinstance(event, Notice)]
    assert any("added deny rules for this session: Bash(git push:*)" in text for text in said)


@pytest.mark.parametrize("behavior", ["deny", "ask"])
async def test_what_would_forbid_something_is_had_or_the_call_does_not_run(tmp_path: Path, behavior: str) -> None:
    """It is no use to know that a deny rule was left out after the call that came with it has run."""
    update = rules("addRules", behavior, ("Bash", "command:*rm*"))
    async with make_session(SAYS, tmp_path) as session, connected() as program:
        with pytest.raises(PolicyError):
            take(session, [update])
        state, callback = state_of(program.wire), Callback(program.wire, lambda state: None, session)
        got = []

        async def ask() -> None:
            got.append(await callback(ApprovalRequest("t", "X", Subject("s"), {}, Decision(Verdict.ASK, "r"))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            tasks.start_soon(ask)
            asked = await program.read()
            answer = {"behavior": "allow", "updatedInput": {}, "updatedPermissions": [update]}
            response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
            program.send({"type": "control_response", "response": response})
            program.close()
    assert (got[0].allow, callback.consented) == (False, False)


async def test_what_would_widen_is_left_out_where_it_cannot_be_had_and_said(tmp_path: Path) -> None:
    """The call that came with it may run; the folders of another machine, and rules nobody knows, are not."""
    given = [
        rules("addRules", "allow", ("Bash", "command:*rm*")),
        rules("addRules", "deny", ("NoSuchTool", None)),
        {"type": "addDirectories", "directories": ["/etc"]},
        {"type": "setMode", "mode": "auto"},
        "nonsense",
    ]
    async with make_session(SAYS, tmp_path) as session:
        before = session.policy
        take(session, given)
        assert session.policy == before
    said = [event.text for event in recorded(tmp_path) if isinstance(event, Notice)]
    assert len(said) == 5
    assert sum("left out" in text for text in said) == 4


HOOKED: list[tuple[str, dict[str, Any], bool, bool]] = [
    ("PermissionRequest", {"decision": {"behavior": "allow"}}, True, True),
    ("PermissionRequest", {"decision": {"behavior": "allow", "updatedInput": {"name": "a"}}}, True, True),
    ("PermissionRequest", {"decision": {"behavior": "allow", "updatedInput": {"name": "b"}}}, False, False),
    (
        "PermissionRequest",
        {
            "decision": {
                "behavior": "allow",
                "updatedPermissions": [rules("addRules", "deny", ("Bash", "command:*rm*"))],
            }
        },
        False,
        False,
    ),
    ("PreToolUse", {"permissionDecision": "allow"}, True, True),
]


@pytest.mark.parametrize(("event", "output", "runs", "consents"), HOOKED)
async def test_a_hook_s_yes_is_for_what_it_saw(
    tmp_path: Path, event: str, output: dict[str, Any], runs: bool, consents: bool
) -> None:
    """On a question it cannot put another input in place: then the call does not run as it was, either."""
    async with connected() as program:
        state = state_of(program.wire)
        given = read_hooks({event: [{"hookCallbackIds": ["h"]}]})
        hooks = SdkHooks(given, program.wire, state.lines, tmp_path)
        [hook] = hooks.program_hooks()
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await hook.call({"tool_name": "X", "tool_input": {"name": "a"}, "agent_id": "main"}))

        async with make_session(SAYS, tmp_path) as session, anyio.create_task_group() as tasks:
            hooks.session = session
            tasks.start_soon(listen, state, tasks)
            tasks.start_soon(call)
            asked = await program.read()
            said = {"hookSpecificOutput": {"hookEventName": event, **output}}
            response = {"subtype": "success", "request_id": asked["request_id"], "response": said}
            program.send({"type": "control_response", "response": response})
            program.close()
    assert (answers[0].verdict is Verdict.ALLOW, hooks.consented) == (runs, consents)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({}, None),
        ({"hookSpecificOutput": None, "decision": None}, None),
        ({"hookSpecificOutput": {"permissionDecision": "defer", "updatedInput": None}}, None),
        ({"hookSpecificOutput": {"permissionDecision": "Deny"}}, "'Deny', which is none of allow, deny, ask, defer"),
        ({"hookSpecificOutput": {"permissionDecision": True}}, "permissionDecision"),
        ({"hookSpecificOutput": {"updatedInput": "x"}}, "updatedInput"),
        ({"hookSpecificOutput": "deny"}, "hookSpecificOutput"),
        ({"hookSpecificOutput": {"decision": {"behavior": "no"}}}, "behavior"),
        ({"hookSpecificOutput": {"decision": {"message": "no"}}}, "behavior"),
        ({"decision": "Block"}, "decision"),
        ({"continue": 0}, "continue"),
    ],
)
def test_a_word_that_is_not_known_is_a_failure_of_the_hook(answer: dict[str, Any], fault: str | None) -> None:
    """So it denies, unless the hook was to go on: it is never taken for no opinion."""
    if fault is None:
        assert checked(answer)["hookSpecificOutput"].get("updatedInput") is None
    else:
        with pytest.raises(NoAnswerError, match=fault):
            checked(answer)


async def test_a_word_after_a_call_is_no_consent_to_changes(tmp_path: Path) -> None:
    """Only what lets a call run is: what a hook says of its result is not."""
    async with connected() as program:
        state = state_of(program.wire)
        hooks = SdkHooks(read_hooks({"PostToolUse": [{"hookCallbackIds": ["h"]}]}), program.wire, state.lines, tmp_path)
        [hook] = hooks.program_hooks()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            tasks.start_soon(hook.call, {"tool_name": "X", "tool_input": {}, "agent_id": "main"})
            asked = await program.read()
            response = {"subtype": "success", "request_id": asked["request_id"], "response": {"decision": "approve"}}
            program.send({"type": "control_response", "response": response})
            program.close()
    assert hooks.consented is False


COLOUR = Question("Which?", "Colour", (Choice("blue", "b"), Choice("red", "r")))
SIZES = Question("Which sizes?", "Sizes", (Choice("S", ""), Choice("L", "")), several=True)


@pytest.mark.parametrize(
    ("answer", "replies"),
    [
        ({"Which?": "blue", "Which sizes?": "S, L"}, [Reply(("blue",)), Reply(("S", "L"))]),
        ({"Which?": "green, or blue", "Which sizes?": ["L"]}, [Reply(text="green, or blue"), Reply(("L",))]),
        ({"Which?": 7}, [Reply(), Reply()]),
        (None, None),
    ],
)
async def test_the_model_s_questions_go_to_the_callback(answer: Any, replies: list[Reply] | None) -> None:
    """Labels, several of them, or words of the person's own; a yes without answers is none."""
    async with connected() as program:
        state, got = state_of(program.wire), []
        questions = CallbackQuestions(program.wire, lambda state: None)

        async def ask() -> None:
            got.append(await questions([COLOUR, SIZES], agent_id="main"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            tasks.start_soon(ask)
            asked = await program.read()
            given = asked["request"]["input"] | ({"answers": answer} if answer is not None else {})
            said = {"behavior": "allow", "updatedInput": given}
            response = {"subtype": "success", "request_id": asked["request_id"], "response": said}
            program.send({"type": "control_response", "response": response})
            program.close()
        assert got == [replies]
        assert asked["request"]["tool_name"] == "AskUserQuestion"
        assert await questions([replace(COLOUR, asker="a server")], agent_id="main") is None


async def test_a_rule_that_came_with_a_yes_judges_the_next_call(tmp_path: Path) -> None:
    """Also of the same turn."""

    async def approve(question: ApprovalRequest) -> ApprovalAnswer:
        take(session, [rules("addRules", "deny", ("mcp__a__b", None))])
        return ApprovalAnswer(True)

    tools = (make_tool("Note"), make_tool("mcp__a__b"))
    turns = [{"tools": [use("Note", name="a"), use("mcp__a__b", name="b")]}, *SAYS]
    async with make_session(turns, tmp_path, tools=tools, policy=load_policy(None), approver=approve) as session:
        events = await play(session)
    assert [is_error for _, is_error in results(events)] == [False, True]
    assert finished(events).status == "denied"
