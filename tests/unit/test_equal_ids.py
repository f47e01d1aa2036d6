"""Agents whose models give their calls the same ids, as endpoints do that number the calls of each conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from agents_rig import make_team, say, task, tools
from engine_session import Named, finished, make_tool, play

from sandbox_agent.engine.findings import find
from sandbox_agent.engine.past import load_past
from sandbox_agent.engine.recorded import recorded
from sandbox_agent.frontends.stream_json import StreamJson
from sandbox_agent.records.reading import Tape
from sandbox_agent.records.steps import Step
from sandbox_agent.tape import read_tape
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import ToolResult


def first_call(name: str, /, **given: Any) -> dict[str, Any]:
    return {
        "content": [{"type": "tool_use", "id": "call_1", "name": name, "input": given}],
        "stop_reason": "tool_use",
    }


def meeting(agents: int) -> Tool:
    """A tool that returns when so many agents are in it."""
    met, inside = anyio.Event(), 0

    async def meet(value: Named, ctx: ToolContext) -> ToolResult:
        nonlocal inside
        inside += 1
        if inside == agents:
            met.set()
        await met.wait()
        return ToolResult(f"met as {ctx.agent_id}", meta={"who": ctx.agent_id})

    return make_tool("Meet", meet, parallel_safe=True, read_only=True)


PARTS = {
    "do it": [tools(task("a"), task("b")), say("both met")],
    "a": [first_call("Meet", name="of a"), say("a is done")],
    "b": [first_call("Meet", name="of b"), say("b is done")],
}


async def test_calls_of_one_id_run_at_the_same_time(tmp_path: Path) -> None:
    """Each ends by itself, is answered in its own conversation, and was judged by itself."""
    async with make_team(PARTS, tmp_path, own=[meeting(2)]) as session:
        events = await play(session)
        said = {one: str(messages) for one, messages in session.journal.conversations.items()}

    assert finished(events).status == "done"
    assert "met as agent-1" in said["agent-1"]
    assert "met as agent-2" in said["agent-2"]

    entries = read_tape(tmp_path / "events.jsonl").entries
    of_tools = recorded([entries], [meeting(2)]).calls
    assert sorted(call.request.subject.summary for call in of_tools if call.request.tool == "Meet") == ["of a", "of b"]

    found = find(entries)
    assert found.unjudged == []
    assert len(found.untold) == found.calls == 4


async def test_what_is_shown_of_them_is_of_their_own_agent(tmp_path: Path) -> None:
    """The details of a result in stream-json."""
    async with make_team(PARTS, tmp_path, own=[meeting(2)]) as session:
        events = await play(session)
    lines = StreamJson()
    shown = [line for event in events for line in lines.lines(event)]
    details = [line["tool_use_result"] for line in shown if line["type"] == "user" and line.get("tool_use_result")]

    assert sorted(one["who"] for one in details if "who" in one) == ["agent-1", "agent-2"]


async def test_an_interrupted_call_names_the_sub_agent_that_it_had_itself(tmp_path: Path) -> None:
    """And not that of another agent's call of the same id."""
    inside = anyio.Event()

    async def wait(value: Named, ctx: ToolContext) -> None:
        inside.set()
        await anyio.sleep_forever()

    parts = {
        "do it": [first_call("Task", description="a", prompt="a"), say("never")],
        "a": [first_call("Task", description="lower", prompt="lower"), say("never")],
        "lower": [tools({"name": "Wait", "input": {}}), say("never")],
    }
    sessions = tmp_path / "sessions"
    folder = sessions / "20260101000000abcdef01"
    folder.mkdir(parents=True)
    own = [make_tool("Wait", wait, read_only=True)]
    async with make_team(parts, folder, own=own) as session, anyio.create_task_group() as group:
        group.start_soon(play, session)
        await inside.wait()
        record = (folder / "events.jsonl").read_bytes()
        session.interrupt()
    # As `kill -9` would have left it.
    (folder / "events.jsonl").write_bytes(record)
    past = load_past(sessions, folder.name, Path("/home/me/project"))

    missing = {message.agent_id: str(message.content) for message in past.missing}
    assert "The sub-agent agent-1 was at work" in missing["main"]
    assert "The sub-agent agent-1.1 was at work" in missing["agent-1"]


def test_a_replay_answers_a_question_with_what_was_said_to_its_agent() -> None:
    """And not with the answer to another agent's call of the same id."""
    said = [("agent-1", {"call_id": "call_1", "asked": True, "verdict": "deny"})]
    said.append(("agent-2", {"call_id": "call_1", "asked": True, "verdict": "allow"}))
    tape = Tape([Step(number, agent, "decision", data, "") for number, (agent, data) in enumerate(said)])

    for agent, data in said:
        step = tape.of_call(agent, "decision", "call_1")
        assert step is not None
        assert step.data == data
    assert tape.of_call("main", "decision", "call_1") is None
