"""What docs/sdk.md promises besides what test_sdk.py has: claude-agent-sdk, unmodified, on real sessions."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ResultError,
    SystemMessage,
    query,
)
from claude_agent_sdk.types import PermissionRuleValue
from program import DONE, Program, bash, use
from sdk_rig import NAME, options, talking

from sandbox_agent.testing.api_double import ApiDouble

pytestmark = pytest.mark.docker

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"tools": [{"name": "shout", "description": "d", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "initialize":
        version, about = asked["params"]["protocolVersion"], {"name": "loud", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "LOUD"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


OPTIONS = [{"label": "blue", "description": "b"}, {"label": "red", "description": "r"}]
QUESTION = use("AskUserQuestion", questions=[{"question": "Which colour?", "header": "Colour", "options": OPTIONS}])


def write(name: str) -> dict[str, Any]:
    return use("Write", file_path=f"/workspace/{name}", content="new\n")


def added(behavior: Any, tool: str, inner: str | None = None) -> PermissionUpdate:
    """A rule that a callback wants to hold from now on."""
    return PermissionUpdate(type="addRules", rules=[PermissionRuleValue(tool, inner)], behavior=behavior)


def picture() -> str:
    """A PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


async def spoken(*content: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """A message of several blocks."""
    yield {"type": "user", "message": {"role": "user", "content": list(content)}, "parent_tool_use_id": None}


async def test_rules_of_answers_hold_and_hooks_hear_of_questions_and_failures(program: Program) -> None:
    """An allow rule that comes with a yes spares the next question, a deny rule forbids the next call. A hook on the
    question answers for the callback; a no with interrupt ends the turn. Rules of settings hold, servers in the
    container are called, only the named tools are there, the instruction is the program's, and so is the answer to a
    question of the model."""
    asked: list[str] = []
    heard: list[tuple[str, str]] = []

    async def can_use_tool(name: str, given: dict[str, Any], context: Any) -> Any:
        if name == "AskUserQuestion":
            return PermissionResultAllow(updated_input={**given, "answers": {"Which colour?": "blue"}})
        what = given.get("file_path", given.get("command", ""))
        asked.append(what.split("/")[-1])
        match asked[-1]:
            case "one.txt":
                return PermissionResultAllow(updated_permissions=[added("allow", "Write")])
            case "touch x":
                return PermissionResultAllow(updated_permissions=[added("deny", "Bash", "touch:*")])
            case _:
                return PermissionResultDeny(message="enough", interrupt=True)

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        event = given["hook_event_name"]
        heard.append((event, str(given.get("error") or given["tool_input"].get("command", ""))))
        if event == "PermissionRequest" and given["tool_input"].get("command") == "touch z":
            decided = {"behavior": "deny", "message": "the hook says no"}
            return {"hookSpecificOutput": {"hookEventName": event, "decision": decided}}
        return {}

    (program.folder / "server.py").write_text(SERVER)
    calls = [write("one.txt"), write("two.txt"), bash("touch z"), bash("touch x"), bash("touch y"), bash("cat a.txt")]
    turns: list[dict[str, Any]] = [
        {"tools": [*calls, bash("cat no-such-file"), use("mcp__loud__shout"), QUESTION]},
        DONE,
        {"tools": [bash("mkdir one"), bash("mkdir two")]},
    ]
    events = ("PermissionRequest", "PostToolUseFailure")
    async with ApiDouble(turns) as api:
        made = options(
            program,
            base_url=api.base_url,
            can_use_tool=can_use_tool,
            hooks={event: [HookMatcher(hooks=[hook])] for event in events},
            include_hook_events=True,
            system_prompt="You are terse.",
            tools=["Bash", "Write", "AskUserQuestion"],
            settings=json.dumps({"permissions": {"allow": ["mcp__loud__shout"], "deny": ["Bash(cat a.txt)"]}}),
            mcp_servers={"loud": {"command": "python3", "args": ["/workspace/server.py"]}},
        )
        async with talking(made) as talk:
            await talk.turn("go")
            texts = talk.results()
            hooked = [one.data["hook_event"] for one in talk.of(SystemMessage) if one.subtype == "hook_response"]
            last = await talk.turn("go on")
            interrupted = talk.results()
            info, usage = await talk.client.get_server_info(), await talk.client.get_context_usage()
        [first, *_] = api.message_bodies

    assert asked == ["one.txt", "touch x", "mkdir one"]
    assert [is_error for _, is_error in texts] == [False, False, True, False, True, True, True, False, False]
    assert "the hook says no" in texts[2][0]
    assert "Bash(touch:*)" in texts[4][0]
    assert "Bash(cat a.txt)" in texts[5][0]
    assert "LOUD" in texts[7][0]
    assert "blue" in texts[8][0]
    assert ("PermissionRequest", "touch z") in heard
    assert [text for event, text in heard if event == "PostToolUseFailure" and "no-such-file" in text]
    assert set(hooked) == {"PermissionRequest", "PostToolUse"}
    assert (last.subtype, last.terminal_reason) == ("error_during_execution", "aborted_tools")
    assert [is_error for _, is_error in interrupted] == [True, True]
    assert {tool["name"] for tool in first["tools"]} == {"AskUserQuestion", "Bash", "Write", "mcp__loud__shout"}
    assert "You are terse." in [block["text"] for block in first["system"]]
    assert info is not None
    assert usage["totalTokens"] > 0
    assert sorted(path.name for path in program.folder.iterdir()) == ["a.txt", "one.txt", "server.py", "two.txt", "x"]


async def test_messages_with_pictures_and_those_that_come_meanwhile(program: Program) -> None:
    """What comes while a turn runs goes into it, and one result answers both; a model that is set holds from the next
    turn on. A later process goes on with the newest session of the folder."""
    turns: list[dict[str, Any]] = [{"text": "I look.", "tools": [bash("cat a.txt")]}, DONE, DONE, DONE]
    source = {"type": "base64", "media_type": "image/png", "data": picture()}

    async def before_the_call(given: Any, tool_use_id: str | None, context: Any) -> Any:
        await talk.client.query("and this, too")
        await talk.client.set_model("claude-other")
        return {}

    async with ApiDouble(turns) as api:
        made = options(program, base_url=api.base_url, hooks={"PreToolUse": [HookMatcher(hooks=[before_the_call])]})
        async with talking(made) as talk:
            text = {"type": "text", "text": "what is it?"}
            result = await talk.turn(spoken(text, {"type": "image", "source": source}))
            again = await talk.turn("and now?")
        [before, joined, after] = api.message_bodies
        later = [one async for one in query(prompt="still there?", options=_going_on(program, api))]
        [*_, resumed] = api.message_bodies
    assert [block["type"] for block in before["messages"][0]["content"]] == ["text", "image"]
    assert "and this, too" in str(joined["messages"][-1]["content"])
    assert (result.num_turns, again.num_turns) == (2, 1)
    assert [body["model"] for body in (before, joined, after)] == [NAME, NAME, "claude-other"]
    assert later[-1].session_id == result.session_id
    assert "and this, too" in str(resumed["messages"])


def _going_on(program: Program, api: ApiDouble) -> ClaudeAgentOptions:
    return options(program, base_url=api.base_url, continue_conversation=True)


async def test_money_is_limited_and_another_model_is_asked_where_one_is_overloaded(program: Program) -> None:
    """The price must be known, as a policy gives it; what was used is told by model."""
    policy = program.folder.parent / "priced.yaml"
    prices = {NAME: {"input": 3000, "output": 15000}, "claude-other": {"input": 3, "output": 15}}
    policy.write_text(json.dumps({"version": 1, "extends": "default", "limits": {"prices": prices}}))
    used = {"usage": {"input_tokens": 1000, "output_tokens": 100}}
    async with ApiDouble([{"tools": [bash("cat a.txt")], **used}, DONE]) as api:
        made = options(program, base_url=api.base_url, max_budget_usd=1.0, extra_args={"policy": str(policy)})
        with pytest.raises(ResultError) as raised:
            [one async for one in query(prompt="x", options=made)]
    assert raised.value.subtype == "error_max_budget_usd"

    overloaded = {"status": 404, "text": "no such model"}
    async with ApiDouble([overloaded, {**DONE, **used}]) as api:
        made = options(
            program, base_url=api.base_url, fallback_model="claude-other", extra_args={"policy": str(policy)}
        )
        result = [one async for one in query(prompt="x", options=made)][-1]
    assert (result.result, list(result.model_usage)) == ("All done.", ["claude-other"])
    assert result.total_cost_usd == pytest.approx(0.0045)


async def test_hooks_end_turns_and_fail_closed_and_what_is_not_had_is_said(program: Program) -> None:
    """After `continue: false` no tool runs, nor what is judged together with that call. A hook that raises, or says a
    word nobody knows, has denied, unless it goes on. What has no effect is said, requests that cannot be had get an
    error, and a job holds no result up."""
    said: list[str] = []

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        match given["tool_input"].get("command"):
            case "echo stop":
                return {"continue_": False, "stopReason": "no more today"}
            case "echo raise":
                raise RuntimeError("broken")
            case "echo odd":
                return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "Deny"}}
            case _:
                return {}

    async def broken(given: Any, tool_use_id: str | None, context: Any) -> Any:
        raise RuntimeError("broken, too")

    async def rewrite(given: Any, tool_use_id: str | None, context: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "other"}}

    job = bash("echo begun; exec sleep 1000", run_in_background=True)
    turns: list[dict[str, Any]] = [
        {"tools": [bash("echo raise"), bash("echo odd"), bash("echo fine"), job]},
        {"text": "One thing more.", "tools": [bash("echo before"), bash("echo stop"), bash("echo after")]},
        {"text": "Never asked for."},
    ]
    async with ApiDouble(turns) as api:
        made = options(
            program,
            base_url=api.base_url,
            allowed_tools=["Bash", "NoSuchTool"],
            hooks={
                "PreToolUse": [
                    HookMatcher(matcher="Bash", hooks=[hook]),
                    HookMatcher(hooks=[broken], on_failure="continue"),
                ],
                "PostToolUse": [HookMatcher(hooks=[rewrite])],
                "PreCompact": [HookMatcher(hooks=[hook])],
            },
            stderr=said.append,
            effort="high",
            settings=json.dumps({"env": {"A": "b"}}),
        )
        async with talking(made) as talk:
            result = await talk.turn("go")
            texts = talk.results()
            for asked in (
                talk.client.rewind_files("x"),
                talk.client.reconnect_mcp_server("x"),
                talk.client.toggle_mcp_server("x", False),
            ):
                with pytest.raises(Exception, match="there is no control request"):
                    await asked
            notices = [one.data["text"] for one in talk.of(SystemMessage) if one.subtype == "notice"]
    assert [is_error for _, is_error in texts] == [True, True, False, False, True, True, True]
    assert "broken" in texts[0][0]
    assert "none of allow, deny, ask, defer" in texts[1][0]
    assert texts[2][0].startswith("fine")
    assert (result.subtype, result.is_error, result.terminal_reason) == ("success", False, "hook_stopped")
    assert api.turns_left == 1
    assert any("updatedToolOutput" in text for text in notices)
    for word in ("PreCompact", "NoSuchTool", "--effort", "'env'"):
        assert any(word in line for line in said), word
