"""The streams between us and a program: framing, questions that wait, and what a program cannot break."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from sdk_wire_rig import answered, connected, state_of

from sandbox_agent.engine.approval import ApprovalRequest
from sandbox_agent.events import RunFinished
from sandbox_agent.frontends.sdk.asking import Callback
from sandbox_agent.frontends.sdk.incoming import listen
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.wire import MAX_LINE_CHARS, FrameError, NoAnswerError, Wire, fitting
from sandbox_agent.types import Decision, Subject, Usage, Verdict


async def test_every_control_request_is_answered(tmp_path: Path) -> None:
    """Before there is a session, too; what is not known with an error, not with silence."""
    async with connected() as program:
        state = state_of(program.wire)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            begun = await answered(program, state, {"subtype": "initialize", "hooks": None, "agents": {}})
            assert begun["response"]["hook_on_failure_supported"] is True
            assert (await answered(program, state, {"subtype": "interrupt"}))["response"] == {"still_queued": []}
            for subtype in ("rewind_files", "mcp_reconnect", "no_such_thing"):
                said = await answered(program, state, {"subtype": subtype})
                assert (said["subtype"], subtype in said["error"]) == ("error", True)
            program.send({"type": "of a later protocol"})
            program.send(b"")
            program.send({"type": "user", "message": {"role": "user", "content": "x"}})
            program.close()
        assert len(state.inbox) == 1
        assert program.wire.closed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hooks": {"NoSuchEvent": []}}, "NoSuchEvent"),
        ({"hooks": {"PreToolUse": [{"matcher": "(", "hookCallbackIds": ["a"]}]}}, "regular expression"),
        ({"agents": {"a": {"description": "d"}}}, "has no prompt"),
        ({"agents": {"a": {"prompt": "p", "permissionMode": "auto"}}}, "no permission mode"),
    ],
)
async def test_an_initialize_that_cannot_be_had_is_refused(given: dict[str, Any], said: str) -> None:
    """In words, and the process has nothing to wait for."""
    async with connected() as program:
        state = state_of(program.wire)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            answer = await answered(program, state, {"subtype": "initialize", **given})
            program.close()
        assert (answer["subtype"], said in answer["error"], said in (state.fault or "")) == ("error", True, True)


async def test_a_question_is_answered_refused_or_withdrawn() -> None:
    """And when the program has closed its side, nobody waits for it any more."""
    async with connected() as program:
        state, answers = state_of(program.wire), []

        async def ask() -> None:
            try:
                answers.append(await program.wire.ask({"subtype": "can_use_tool"}))
            except NoAnswerError as exc:
                answers.append(str(exc))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            for response in ({"subtype": "success", "response": {"a": 1}}, {"subtype": "error", "error": "it raised"}):
                tasks.start_soon(ask)
                asked = await program.read()
                program.send({"type": "control_response", "response": {**response, "request_id": asked["request_id"]}})
            async with anyio.create_task_group() as inner:
                inner.start_soon(ask)
                asked = await program.read()
                inner.cancel_scope.cancel()
            withdrawn = await program.read()
            assert withdrawn == {"type": "control_cancel_request", "request_id": asked["request_id"]}
            with pytest.raises(NoAnswerError, match="did not answer within"):
                await program.wire.ask({"subtype": "hook_callback"}, 0.01)
            await program.read(), await program.read()
            tasks.start_soon(ask)
            await program.read()
            program.close()
        assert answers == [{"a": 1}, "it raised", "the program has closed its side"]


async def test_no_line_is_longer_than_a_program_takes_and_no_question_is_cut() -> None:
    """What is shown is shortened; a call that does not fit is denied, for its whole input has to be seen."""
    async with connected() as program:
        block = {"type": "tool_result", "tool_use_id": "t", "content": "x" * 3_000_000}
        picture = {"type": "image", "source": {"type": "base64", "data": "A" * 2_000_000}}
        program.wire.send({"type": "user", "message": {"content": [block, picture]}, "tool_use_result": {"a": "y" * 9}})
        said = await program.read()
        assert [one["type"] for one in said["message"]["content"]] == ["tool_result", "text"]
        assert "3,000,000 characters in all" in said["message"]["content"][0]["content"]
        question = ApprovalRequest("t", "Write", Subject("s"), {"content": "x" * 2_000_000}, Decision(Verdict.ASK, "r"))
        states: list[str] = []
        answer = await Callback(program.wire, states.append)(question)
        assert (answer.allow, "longer than" in str(answer.reason)) == (False, True)
    assert len(json.dumps(fitting({"type": "x", "many": ["z" * 50] * 100_000}))) < MAX_LINE_CHARS


async def test_a_stream_that_cannot_be_waited_for_never_blocks() -> None:
    """The null device, as a service or a pipeline has it for standard input and output."""
    fd = os.open(os.devnull, os.O_RDWR)
    wire = Wire(fd, fd)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.write)
            wire.send({"type": "result"})
            await wire.written()
            assert [frame async for frame in wire.frames()] == []
            tasks.cancel_scope.cancel()
    os.close(fd)


async def test_a_reader_that_goes_is_noticed_while_nothing_is_written() -> None:
    """A program that was killed during a long command: nobody waits for what that says."""
    (ours_in, say), (hear, ours_out) = os.pipe(), os.pipe()
    wire = Wire(ours_in, ours_out)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.watch)
            tasks.start_soon(wire.write)
            wire.send({"type": "result"})
            await wire.written()
            assert os.read(hear, 100)
            await anyio.wait_all_tasks_blocked()
            assert not wire.gone.is_set()
            os.close(hear)
            await wire.gone.wait()
            tasks.cancel_scope.cancel()
    for fd in (ours_in, say, ours_out):
        os.close(fd)


async def test_what_is_no_frame_ends_the_input_in_words() -> None:
    """A line that is no JSON object is nothing to guess about."""
    for line in (b"nonsense", b"[1]"):
        async with connected() as program:
            program.send(line)
            with pytest.raises(FrameError):
                async for _ in program.wire.frames():
                    pass


@pytest.mark.parametrize(
    ("answer", "allows", "given"),
    [
        ({"behavior": "allow", "updatedInput": {"a": 1}}, True, None),
        ({"behavior": "allow", "updatedInput": {"a": 2}}, True, {"a": 2}),
        ({"behavior": "allow", "updatedInput": {"a": True}}, True, {"a": True}),
        ({"behavior": "allow", "updatedInput": "x"}, False, None),
        ({"behavior": "deny", "message": "no"}, False, None),
        ({"behavior": "perhaps"}, False, None),
        ({}, False, None),
    ],
)
async def test_only_a_clear_yes_is_one(answer: dict[str, Any], allows: bool, given: object) -> None:
    """An input that comes back as it was is no other input."""
    async with connected() as program:
        state = state_of(program.wire)
        callback = Callback(program.wire, state.tell)
        got = []

        async def ask() -> None:
            decision = Decision(Verdict.ASK, "r")
            request = ApprovalRequest("t", "Write", Subject("s"), {"a": 1}, decision, agent_id="agent-1")
            got.append(await callback(request))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, state, tasks)
            tasks.start_soon(ask)
            open_state, asked = await program.read(), await program.read()
            response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
            program.send({"type": "control_response", "response": response})
            closed_state = await program.read()
            program.close()
        assert (got[0].allow, got[0].updated_input, callback.consented) == (allows, given, allows)
        assert (open_state["state"], closed_state["state"]) == ("requires_action", "running")
        assert (asked["request"]["tool_use_id"], asked["request"]["agent_id"]) == ("t", "agent-1")


def test_a_result_has_what_a_client_needs_whatever_happened() -> None:
    """Also where no turn was."""
    lines = Lines("s-1")
    line = lines.result_line(subtype="error_during_execution", is_error=True, errors=["x"])
    needed = {"subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"}
    assert needed <= line.keys()
    failed = RunFinished(
        status="model_error", text="", turns=1, usage=Usage(), duration_s=1, error="bad", api_status=529
    )
    [said] = lines.fault_lines(failed)
    assert (said["message"]["model"], said["error"]) == ("<synthetic>", "server_error")
