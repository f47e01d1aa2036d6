"""What is made of a hook's exit code and output: a clear answer, or a fault, and nothing between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_agent.engine.hook_answers import MAX_CONTEXT_CHARS, HookAnswer, read_answer
from sandbox_agent.engine.hook_process import HookEnd
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.types import Verdict

PRE = HookEvent.PRE_TOOL_USE


def answer(output: Any, event: HookEvent = PRE, *, code: int = 0, stderr: str = "") -> HookAnswer:
    text = output if isinstance(output, str) else json.dumps(output)
    return read_answer(event, HookEnd(code, text.encode(), stderr.encode()))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", HookAnswer()),
        (" \n", HookAnswer()),
        ({}, HookAnswer()),
        ({"continue": True, "suppressOutput": True}, HookAnswer()),
        ({"decision": "deny", "reason": "no"}, HookAnswer(Verdict.DENY, "no")),
        ({"decision": "block", "reason": "no"}, HookAnswer(Verdict.DENY, "no")),
        ({"decision": "ask"}, HookAnswer(Verdict.ASK)),
        ({"decision": "allow"}, HookAnswer(Verdict.ALLOW)),
        ({"updated_input": {"a": 1}}, HookAnswer(updated_input={"a": 1})),
        ({"additional_context": "look"}, HookAnswer(context="look")),
        (
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "ask",
                    "permissionDecisionReason": "why",
                    "updatedInput": {"a": 1},
                    "additionalContext": "look",
                }
            },
            HookAnswer(Verdict.ASK, "why", {"a": 1}, "look"),
        ),
        (
            {"decision": "block", "hookSpecificOutput": {"permissionDecision": "allow"}},
            HookAnswer(Verdict.DENY),
        ),
    ],
)
def test_an_answer_is_read(output: Any, expected: HookAnswer) -> None:
    """In our names and in those that hooks for Claude Code use; of two words the stricter holds."""
    assert expected == answer(output)


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ("ok", "not JSON"),
        ("{", "not JSON"),
        ("[]", "no answer"),
        ("null", "no answer"),
        ('{"updated_input": {"a": NaN}}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": True}, "decision"),
        ({"permissionDecison": "deny"}, "permissionDecison"),
        ({"continue": False}, "continue"),
        ({"updated_input": "x"}, "updated"),
        ({"updated_input": {"a": json.loads("[" * 150 + "]" * 150)}}, "nests"),
    ],
)
def test_what_is_no_answer_is_a_fault(output: Any, fault: str) -> None:
    """Also a misspelt name: whoever wrote it meant to say something."""
    said = answer(output)

    assert said.fault is not None
    assert fault in said.fault
    assert said == HookAnswer(fault=said.fault)


def test_exit_code_2_blocks_with_what_was_said() -> None:
    """On standard error; standard output does not count then."""
    assert HookAnswer(Verdict.DENY, "because") == answer("{not json", code=2, stderr=" because\n")
    assert HookAnswer(Verdict.DENY, "it gave no reason") == answer("", code=2)


@pytest.mark.parametrize("code", [1, 3, 126, 127, 137, -9, 255])
def test_any_other_exit_code_is_a_fault(code: int) -> None:
    """With what was said; its output is not looked at."""
    said = answer({"decision": "allow"}, code=code, stderr="oh")

    assert said == HookAnswer(fault=f"ended with exit code {code}: oh")


@pytest.mark.parametrize(
    ("event", "output"),
    [
        (HookEvent.POST_TOOL_USE, {"updated_input": {}}),
        (HookEvent.PERMISSION_REQUEST, {"updated_input": {}}),
        (HookEvent.PERMISSION_REQUEST, {"additional_context": "x"}),
        (HookEvent.STOP, {"additional_context": "x"}),
        (HookEvent.SESSION_END, {"additional_context": "x"}),
    ],
)
def test_what_an_event_has_no_room_for_is_a_fault(event: HookEvent, output: Any) -> None:
    """An input that is changed after it was judged, above all."""
    assert "cannot use" in str(answer(output, event).fault)


def test_plain_text_at_the_start_is_context() -> None:
    """And JSON is read as such; elsewhere plain text is a fault."""
    assert HookAnswer(context="branch main") == answer("branch main\n", HookEvent.SESSION_START)
    assert HookAnswer(context="x") == answer({"additional_context": "x"}, HookEvent.SESSION_START)


def test_long_texts_are_cut_and_say_so() -> None:
    """The model's window is not the hook's."""
    context = answer({"additional_context": "x" * 100_000}).context

    assert context is not None
    assert context.endswith("[cut; 100000 characters in all]")
    assert len(context) < MAX_CONTEXT_CHARS + 50


def test_a_name_without_end_is_cut_in_the_fault() -> None:
    """A fault is recorded, shown, and told to the model."""
    fault = answer({"x" * 900_000: 1}).fault
    assert fault is not None
    assert len(fault) < 500
