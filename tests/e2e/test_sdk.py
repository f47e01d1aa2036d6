"""claude-agent-sdk, unmodified, drives a session through `cli_path`."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    ToolUseBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from program import DONE, WRITE, Program, bash, containers_of, use
from sdk_rig import Talk, options, talking

from sandbox_agent.events import PermissionDecided, RunFinished
from sandbox_agent.tape import read_tape
from sandbox_agent.testing.api_double import ApiDouble

pytestmark = pytest.mark.docker


def write(name: str, content: str = "new\n") -> dict[str, Any]:
    return use("Write", file_path=f"/workspace/{name}", content=content)


async def one_shot(text: str, made: ClaudeAgentOptions) -> list[Any]:
    """All messages of a query."""
    return [message async for message in query(prompt=text, options=made)]


async def test_a_query_changes_the_folder_and_ends_with_its_result(program: Program) -> None:
    """With a hook the input stays open until the session says that it is idle. What can do harm later is withheld and
    named. A second query goes on with the session; the end of its input comes right behind the prompt, and aborts
    nothing."""
    stopped: list[bool] = []

    async def at_stop(given: Any, tool_use_id: str | None, context: Any) -> Any:
        stopped.append(given["stop_hook_active"])
        return {}

    hook = {"text": "And this.", "tools": [write("Makefile", "all:\n\ttrue\n")]}
    script = program.script([WRITE, hook, DONE])
    hooks: Any = {"Stop": [HookMatcher(hooks=[at_stop])]}
    made = options(program, model=script, permission_mode="acceptEdits", system_prompt="Be brief.", hooks=hooks)
    messages = await one_shot("make a file", made)
    result = messages[-1]
    assert stopped == [False]
    assert messages[0].data["claude_code_version"].count(".") == 2

    assert isinstance(result, ResultMessage)
    assert (result.subtype, result.is_error, result.result) == ("success", False, "All done.")
    assert (result.num_turns, result.terminal_reason) == (3, "completed")
    assert (program.folder / "new.txt").read_text() == "new\n"
    assert not (program.folder / "Makefile").exists()
    assert containers_of(result.session_id) == []
    [finished] = [one.event for one in read_tape(program.session() / "events.jsonl").entries if _ended(one.event)]
    assert finished.status == "done"
    assert "Makefile" in program.call("diff", "last").stdout

    async with ApiDouble([DONE]) as api:
        again = await one_shot("go on", options(program, base_url=api.base_url, resume=result.session_id))
        [body] = api.message_bodies
    assert again[-1].session_id == result.session_id
    assert str(body["messages"]).count("make a file") == 1
    assert str(body["messages"]).count("All done.") == 1


def _ended(event: object) -> bool:
    return isinstance(event, RunFinished)


async def test_the_callback_hooks_tools_and_sub_agents_of_a_program(program: Program) -> None:
    """One client, one container: what is allowed, denied, and changed by the callback; hooks before and after calls, at
    a prompt and at the end; a tool inside the program; a sub-agent of its own; pieces as they stream."""
    asked: list[str] = []
    hooked: list[tuple[str, str]] = []

    async def can_use_tool(name: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(f"{name} {given.get('file_path', '')}")
        assert context.tool_use_id
        match Path(given.get("file_path", "")).name:
            case "denied.txt":
                return PermissionResultDeny(message="not that one")
            case "modified.txt":
                return PermissionResultAllow(updated_input={**given, "content": "modified\n"})
            case "secret.txt":
                return PermissionResultAllow(updated_input={**given, "file_path": "/workspace/kept/secret.txt"})
            case _:
                return PermissionResultAllow()

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        event = given["hook_event_name"]
        hooked.append((event, str(given.get("tool_name") or given.get("prompt") or given.get("agent_type") or "")))
        assert given["cwd"] == str(program.folder)
        if event == "PreToolUse" and "forbidden" in str(given["tool_input"]):
            denied = {"permissionDecision": "deny", "permissionDecisionReason": "no such command"}
            return {"hookSpecificOutput": {"hookEventName": event, **denied}}
        if event == "UserPromptSubmit" and "blocked" in given["prompt"]:
            return {"decision": "block", "reason": "not this prompt"}
        if event == "PostToolUse":
            return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "the hook was here"}}
        if event == "Stop" and not given["stop_hook_active"]:
            return {"decision": "block", "reason": "one more word"}
        return {}

    @tool("add", "Adds two numbers.", {"a": int, "b": int})
    async def add(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"the sum is {given['a'] + given['b']}"}]}

    writes = [write(name) for name in ("fine.txt", "denied.txt", "modified.txt", "secret.txt")]
    turns: list[dict[str, Any]] = [
        {"text": "I write.", "tools": [*writes, bash("echo forbidden")]},
        {"text": "The first part is done."},
        {"text": "One more word."},
        {"tools": [use("mcp__calc__add", a=2, b=3), use("Task", description="d", prompt="p", subagent_type="helper")]},
        {"tools": [use("Glob", pattern="*")]},
        {"text": "The helper has looked."},
        {"text": "The second part is done."},
        {"text": "And that is all."},
    ]
    events = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop")
    async with ApiDouble(turns) as api:
        made = options(
            program,
            base_url=api.base_url,
            can_use_tool=can_use_tool,
            disallowed_tools=["Edit(kept/**)"],
            hooks={event: [HookMatcher(hooks=[hook])] for event in events},
            mcp_servers={"calc": create_sdk_mcp_server("calc", tools=[add])},
            agents={"helper": AgentDefinition(description="helps", prompt="You help.", tools=["Glob"])},
            include_partial_messages=True,
        )
        async with talking(made) as talk:
            blocked = await talk.turn("a blocked prompt")
            assert (blocked.result, blocked.num_turns, api.requests) == ("not this prompt", 0, [])

            first = await talk.turn("the first part")
            _check_first(talk, first, asked, program)
            assert ("Stop", "") in hooked

            before = len(hooked)
            second = await talk.turn("the second part")
            assert second.result == "And that is all."
            _check_second(talk, hooked[before:])
            status = await talk.client.get_mcp_status()
            assert [(one["name"], one["status"]) for one in status["mcpServers"]] == [("calc", "connected")]
        assert [received.refusal for received in api.requests if received.refusal] == []
        assert "mcp__calc__add" in talk.init["tools"]
    decided = [e.event for e in read_tape(program.session() / "events.jsonl").entries if _judged(e.event)]
    assert {(one.answered_by, one.verdict) for one in decided if one.asked} == {
        ("callback", "allow"),
        ("callback", "deny"),
    }
    assert program.call("sessions", "audit", "last").code == 0


def _judged(event: object) -> bool:
    return isinstance(event, PermissionDecided)


def _check_first(talk: Talk, result: ResultMessage, asked: list[str], program: Program) -> None:
    """One allowed, one denied, one changed, one changed into what a rule denies, one stopped by a hook."""
    fine, denied, modified, secret, forbidden = talk.results()
    assert "the hook was here" in fine[0]
    assert (denied[1], "not that one" in denied[0]) == (True, True)
    assert (modified[1], "modified" in modified[0]) == (False, True)
    assert (secret[1], "Edit(kept/**)" in secret[0]) == (True, True)
    assert (forbidden[1], "no such command" in forbidden[0]) == (True, True)
    assert [one.split("/")[-1] for one in asked] == ["fine.txt", "denied.txt", "modified.txt", "secret.txt"]
    assert result.permission_denials is not None
    reasons = [str(one["reason"]) for one in result.permission_denials]
    assert len(reasons) == 3
    assert all(reasons)
    assert (program.folder / "modified.txt").read_text() == "modified\n"
    assert sorted(os.listdir(program.folder)) == ["a.txt", "fine.txt", "modified.txt"]
    assert (result.result, result.num_turns) == ("One more word.", 3)
    kinds = [one.event["type"] for one in talk.of(StreamEvent)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("message_start") == kinds.count("message_stop") == 3
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")


def _check_second(talk: Talk, hooked: list[tuple[str, str]]) -> None:
    """The tool inside the program ran, and the sub-agent under its own name; its calls are its parent's children."""
    assert "the sum is 5" in talk.results()[0][0] or "the sum is 5" in str(talk.results())
    [started], [ended] = talk.of(TaskStartedMessage), talk.of(TaskNotificationMessage)
    assert (started.task_id, ended.status) == (ended.task_id, "completed")
    inner = [one for one in talk.of(AssistantMessage) if one.parent_tool_use_id == started.tool_use_id]
    assert [type(block) for one in inner for block in one.content] == [ToolUseBlock]
    assert ("SubagentStart", "helper") in hooked
    assert ("PreToolUse", "mcp__calc__add") in hooked


async def test_an_interrupt_ends_the_turn_and_not_the_session(program: Program) -> None:
    """A running command, an open question and a streaming answer; what follows goes on in the same container."""
    opened, withdrawn = asyncio.Event(), asyncio.Event()

    async def can_use_tool(name: str, given: dict[str, Any], context: Any) -> Any:
        opened.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            withdrawn.set()
            raise
        return PermissionResultAllow()

    sleeping = {"text": "I wait.", "tools": [bash("sleep 300", timeout=400_000)]}
    turns = [sleeping, {"text": "I ask.", "tools": [write("x.txt")]}, {"text": "word " * 200, "pace_s": 0.05}, DONE]
    async with ApiDouble(turns) as api:
        made = options(
            program,
            base_url=api.base_url,
            can_use_tool=can_use_tool,
            allowed_tools=["Bash(sleep:*)"],
            include_partial_messages=True,
        )
        async with talking(made) as talk:

            async def at_call(message: Any) -> None:
                if isinstance(message, AssistantMessage) and isinstance(message.content[0], ToolUseBlock):
                    await talk.client.interrupt()

            result = await talk.turn("sleep", at_call)
            assert (result.subtype, result.is_error) == ("error_during_execution", True)
            assert [is_error for _, is_error in talk.results()] == [True]

            async def at_question(message: Any) -> None:
                if isinstance(message, AssistantMessage) and isinstance(message.content[0], ToolUseBlock):
                    await opened.wait()
                    await talk.client.interrupt()

            result = await talk.turn("ask", at_question)
            await asyncio.wait_for(withdrawn.wait(), 5)
            assert (result.is_error, len(talk.results())) == (True, 1)

            async def at_piece(message: Any) -> None:
                if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
                    await talk.client.interrupt()

            result = await talk.turn("speak", at_piece)
            assert result.terminal_reason == "aborted_streaming"
            assert "word" in str(talk.of(AssistantMessage)[-1].content)

            await talk.client.interrupt()  # nothing runs: no result of it
            assert (await talk.turn("end")).result == "All done."
            await talk.client.set_permission_mode("acceptEdits")
            await talk.client.set_model("claude-other")
            with pytest.raises(Exception, match="no permission mode"):
                await talk.client.set_permission_mode("auto")
        assert [received.refusal for received in api.requests if received.refusal] == []


async def test_limits_faults_and_answers_of_a_form(program: Program) -> None:
    """Each is told as this protocol tells it, and after an error the process takes the next prompt."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    script = program.script([WRITE, WRITE, DONE])
    with pytest.raises(ResultError) as raised:
        await one_shot("x", options(program, model=script, max_turns=1, permission_mode="acceptEdits"))
    assert (raised.value.subtype, raised.value.exit_code) == ("error_max_turns", 1)

    answer = [{"tools": [use("StructuredOutput", n="x")]}, {"text": "Done?"}, {"tools": [use("StructuredOutput", n=7)]}]
    turns: list[dict[str, Any]] = [*answer, DONE, *[{"text": "no"}] * 5, {"status": 401, "text": "x"}, {"text": "x"}]
    async with ApiDouble(turns) as api:
        form = {"type": "json_schema", "schema": schema}
        async with talking(options(program, base_url=api.base_url, output_format=form)) as talk:
            result = await talk.turn("count")
            assert (result.structured_output, result.is_error) == ({"n": 7}, False)
            result = await talk.turn("count again")
            assert (result.subtype, result.is_error) == ("error_max_structured_output_retries", True)
            result = await talk.turn("fail")
            assert (result.subtype, result.is_error, result.api_error_status) == ("success", True, 401)
            [said] = talk.of(AssistantMessage)
            assert (said.model, said.error) == ("<synthetic>", "authentication_failed")


@pytest.mark.parametrize("made", [{"extra_args": {"no-such-flag": None}}, {"add_dirs": ["/tmp"]}])
async def test_what_cannot_be_had_ends_at_once_and_is_named(program: Program, made: dict[str, Any]) -> None:
    """Not after a minute of waiting for an answer."""
    said: list[str] = []
    began_s = time.monotonic()
    with pytest.raises(ProcessError):
        await one_shot("x", options(program, model=program.script([DONE]), stderr=said.append, **made))
    assert time.monotonic() - began_s < 10
    assert any(("no-such-flag" if "extra_args" in made else "add-dir") in line for line in said)


async def test_an_unknown_session_is_an_error_result_at_connect(program: Program) -> None:
    """With the words for people, and no session."""
    with pytest.raises(ResultError, match="there is no session"):
        await one_shot("x", options(program, model=program.script([DONE]), resume="20200101000000deadbeef"))


async def test_disconnecting_in_a_command_leaves_nothing(program: Program) -> None:
    """SIGTERM comes 5 s after the end of the input: the container is gone within 5 s more, the record is whole."""
    script = program.script([{"text": "I wait.", "tools": [bash("sleep 300", timeout=400_000)]}, DONE])
    made = options(program, model=script, allowed_tools=["Bash(sleep:*)"])
    async with talking(made) as talk:
        await talk.client.query("wait")
        async for message in talk.client.receive_messages():
            if isinstance(message, SystemMessage) and message.subtype == "sandbox_ready":
                break
        tape = program.session() / "events.jsonl"
        process: Any = talk.client._transport._process  # type: ignore[union-attr]
        began_s = time.monotonic()
        process.terminate()
        await process.wait()
        assert time.monotonic() - began_s < 5
        assert process.returncode == 143
        assert containers_of(program.session().name) == []
    read = read_tape(tape)
    assert (read.chain_ok, read.damaged_lines) == (True, 0)
    assert any(isinstance(one.event, RunFinished) for one in read.entries)
