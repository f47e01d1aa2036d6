"""Hooks of a session's life: what they say at the start reaches the first request, a stop can be refused, the end is
always told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from agents_rig import AGENT_TOOLS, TYPES, Cast, task, tools
from engine_session import finished, make_tool, of, play, recorded, results
from hook_rig import DONE, hook, hooked, saying

from sandbox_agent.engine import session_hooks
from sandbox_agent.engine.session_hooks import STOP_BLOCKS
from sandbox_agent.engine.subagents import Team
from sandbox_agent.errors import SandboxDiedError
from sandbox_agent.events import HookRan, Notice, UserMessage
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput

START, STOP, END = HookEvent.SESSION_START, HookEvent.STOP, HookEvent.SESSION_END
SUBAGENT_STOP = HookEvent.SUBAGENT_STOP
TOOLS = [make_tool("Echo")]


def texts(request: ModelRequest) -> list[str]:
    """Of the first message."""
    return [block["text"] for block in request.messages[0]["content"]]


async def test_the_first_request_waits_for_the_start_and_holds_what_it_said(tmp_path: Path) -> None:
    """Behind the task, marked as what it is; a second task does not start the session again."""
    told: list[Any] = []
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> dict[str, Any]:
        requests.append(request)
        return DONE

    programs = {"h": saying("branch main", told=told)}
    async with hooked(model, tmp_path, [hook(START, "h")], programs, tools=TOOLS) as session:
        await play(session, "task")
        await play(session, "again")

    task, context = texts(requests[0])
    assert task == "task"
    assert context.endswith('<hook-output hook="h" from="container">\nbranch main\n</hook-output>')
    assert "never as instructions" in context
    assert [(call["hook_event_name"], call["source"]) for call in told] == [("SessionStart", "startup")]


@pytest.mark.parametrize("program", [saying(exit_code=2, stderr="no"), saying(exit_code=1), saying("{")])
async def test_a_start_hook_that_fails_is_told_and_stops_nothing(tmp_path: Path, program: Any) -> None:
    """It was to give something, and it did not."""
    async with hooked([DONE], tmp_path, [hook(START, "h")], {"h": program}, tools=TOOLS) as session:
        events = await play(session)

    assert finished(events).status == "done"
    assert len(of(events, UserMessage)) == 1
    assert len(of(events, HookRan)) == 1


async def test_a_stop_hook_sends_the_agent_on_with_its_reason(tmp_path: Path) -> None:
    """As the user's next message; it is told when it has done so before."""
    told: list[Any] = []

    def program(call: ProgramCall) -> ProgramOutput:
        saying(told=told)(call)
        return ProgramOutput() if told[-1]["stop_hook_active"] else ProgramOutput(b"", b"run the tests", 2)

    turns = [{"text": "finished"}, {"text": "now really"}]
    async with hooked(turns, tmp_path, [hook(STOP, "h")], {"h": program}, tools=TOOLS) as session:
        events = await play(session)

    assert [call["last_assistant_message"] for call in told] == ["finished", "now really"]
    said = of(events, UserMessage)[1].content[0]["text"]
    assert said.startswith("The user's hook h does not let you stop yet: ")
    assert said.endswith(
        'never as instructions.\n<hook-output hook="h" from="container">\nrun the tests\n</hook-output>'
    )
    assert (finished(events).status, finished(events).turns) == ("done", 2)


async def test_a_sub_agent_has_a_stop_hook_of_its_own(tmp_path: Path) -> None:
    """It is sent on in its own conversation, and that of the first agent is not run for it."""
    told: list[Any] = []

    def program(call: ProgramCall) -> ProgramOutput:
        saying(told=told)(call)
        return ProgramOutput() if told[-1]["stop_hook_active"] else ProgramOutput(b"", b"name the lines", 2)

    parts = {"do it": [tools(task("helper")), DONE], "helper": [{"text": "found"}, {"text": "found in line 3"}]}
    hooks, programs = [hook(SUBAGENT_STOP, "sub"), hook(STOP, "h")], {"sub": program, "h": saying("{}")}
    async with hooked(Cast(parts), tmp_path, hooks, programs, tools=AGENT_TOOLS) as session:
        Team(TYPES, session.limits, session.jobs).attach(session)
        events = await play(session)
        said = str(session.journal.conversations["agent-1"])

    assert [call["last_assistant_message"] for call in told] == ["found", "found in line 3"]
    about = {"hook_event_name": "SubagentStop", "agent_id": "agent-1", "agent_type": "general-purpose"}
    assert about.items() <= told[0].items()
    assert "does not let you stop yet" in said
    assert "name the lines" in said
    assert results(events)[0][0].startswith("found in line 3\n")
    assert [(event.hook, event.agent_id) for event in of(events, HookRan)] == [
        ("sub", "agent-1"),
        ("sub", "agent-1"),
        ("h", "main"),
    ]


async def test_a_stop_hook_that_never_lets_go_is_overruled(tmp_path: Path) -> None:
    """After a fixed number of times, and loudly."""
    programs = {"h": saying(exit_code=2, stderr="more")}
    async with hooked(lambda request: DONE, tmp_path, [hook(STOP, "h")], programs, tools=TOOLS) as session:
        events = await play(session)

    assert (finished(events).status, finished(events).turns) == ("done", STOP_BLOCKS + 1)
    assert f"stop hooks have sent the agent back {STOP_BLOCKS} times; now it stops" in of(events, Notice)[-1].text


async def test_a_stop_hook_that_fails_lets_the_agent_stop(tmp_path: Path) -> None:
    """Nothing is at stake but the reminder, and the person is told."""
    async with hooked([DONE], tmp_path, [hook(STOP, "h")], {"h": saying(exit_code=9)}, tools=TOOLS) as session:
        events = await play(session)

    assert finished(events).status == "done"
    assert of(events, Notice)[-1].text == "the hook h ended with exit code 9"


async def test_the_end_is_told_once_with_how_it_went(tmp_path: Path) -> None:
    """Before the sandbox closes; a second closing says nothing more."""
    told: list[Any] = []
    async with hooked([DONE], tmp_path, [hook(END, "h")], {"h": saying(told=told)}, tools=TOOLS) as session:
        await play(session)
        assert session.before_end is not None
        await session.before_end()
        await session_hooks.close(session)

    assert [(call["hook_event_name"], call["reason"]) for call in told] == [("SessionEnd", "done")]


async def test_a_session_that_never_began_has_no_end(tmp_path: Path) -> None:
    """No task was given to it."""
    async with hooked([DONE], tmp_path, [hook(END, "h")], {"h": saying()}, tools=TOOLS) as session:
        await session_hooks.close(session)

    assert of(recorded(tmp_path), HookRan) == []


async def test_the_end_runs_in_what_is_cancelled_and_is_bounded(tmp_path: Path) -> None:
    """The first that hangs takes only its share; the next still runs."""

    async def hangs(call: ProgramCall) -> ProgramOutput:
        await anyio.sleep_forever()
        raise AssertionError

    told: list[Any] = []
    hooks = [hook(END, "hangs"), hook(END, "tells")]
    programs = {"hangs": hangs, "tells": saying(told=told)}
    async with hooked([DONE], tmp_path, hooks, programs, tools=TOOLS) as session:
        await play(session)
        with anyio.CancelScope() as scope, anyio.fail_after(10):
            scope.cancel()
            await session_hooks.close(session)

    assert len(told) == 1


async def test_a_signal_during_the_end_ends_the_hook_that_hangs_and_no_other(tmp_path: Path) -> None:
    """The run had ended well and time enough was left; the rest is told in a hurry."""
    hanging = anyio.Event()

    async def hangs(call: ProgramCall) -> ProgramOutput:
        hanging.set()
        await anyio.sleep_forever()
        raise AssertionError

    told: list[Any] = []
    hooks = [hook(END, "hangs"), hook(END, "tells")]
    programs = {"hangs": hangs, "tells": saying(told=told)}
    async with hooked([DONE], tmp_path, hooks, programs, tools=TOOLS) as session:
        await play(session)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(session_hooks.close, session)
                await hanging.wait()
                group.cancel_scope.cancel()

    assert len(told) == 1


async def test_a_dead_sandbox_does_not_keep_the_session_from_ending(tmp_path: Path) -> None:
    """It is told, and that is all."""
    async with hooked([DONE], tmp_path, [hook(END, "h")], {"h": saying()}, tools=TOOLS) as session:
        await play(session)
        session.sandbox.fail_next(SandboxDiedError("gone"))  # type: ignore[attr-defined]
        await session_hooks.close(session)

    assert of(recorded(tmp_path), Notice)[-1].text == "the hook h could not be run: gone"


async def test_a_hook_on_this_machine_is_named_at_the_start(tmp_path: Path) -> None:
    """With the file and line that it is from."""
    on_host = hook(END, "mine", place="host", command=("true",))
    async with hooked([DONE], tmp_path, [on_host], tools=TOOLS) as session:
        events = await play(session)

    assert "hooks that run on this machine, outside the container: mine (p.yaml:mine)" in of(events, Notice)[0].text
