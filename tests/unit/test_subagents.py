"""Sub-agents that are waited for: their answer, at the same time, one write lane, faults inside, interrupts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from agents_rig import by_agent, heard, make_team, say, task, tools
from engine_session import Named, finished, make_tool, of, play, read_like, recorded, results, use

from sandbox_agent.engine.history import fold, interrupted
from sandbox_agent.engine.queue import Priority
from sandbox_agent.errors import ModelRejectedError
from sandbox_agent.events import AgentFinished, AgentStarted, RequestStarted, ToolFinished, ToolStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Limits


async def test_what_it_said_last_is_the_result_with_what_it_used(tmp_path: Path) -> None:
    """Everything it does is recorded as its own and its parent's; its conversation is not the parent's."""
    parts = {
        "main": [tools(task("look")), say("done")],
        "look": [tools(use("Read", name="x"), usage={"input_tokens": 1000, "output_tokens": 200}), say("found it")],
    }
    async with make_team(parts, tmp_path, own=[read_like("Read")]) as session:
        events = await play(session, "main")

    [(text, is_error)] = [one for one in results(events) if "found it" in one[0]]
    assert not is_error
    assert text.splitlines()[0] == "found it"
    [own_end] = of(events, AgentFinished)
    assert own_end.usage.total_tokens == 1200
    assert "agent_id agent-1; turns 2, tool calls 1, tokens 1,200, " in text
    [ended] = of(events, ToolFinished)[-1:]
    assert (ended.meta["agent_id"], ended.meta["status"], ended.meta["turns"]) == ("agent-1", "done", 2)
    [started] = of(events, AgentStarted)
    assert (started.agent_id, started.parent_id, started.call_id) == ("agent-1", "main", ended.call_id)
    assert {event.parent_id for event in events if event.agent_id == "agent-1"} == {"main"}
    assert [message["role"] for message in fold(events, agent_id="agent-1")] == ["user", "assistant"] * 2
    assert [len(message["content"]) for message in fold(events)] == [1, 1, 1, 1]


async def test_several_in_one_answer_run_together_and_write_one_after_the_other(tmp_path: Path) -> None:
    """All are at work before the first is let go; never are two inside a writing call."""
    at_work: set[str] = set()
    everybody = anyio.Event()
    writing: list[int] = []
    inside = 0

    async def write(value: Named, ctx: ToolContext) -> None:
        nonlocal inside
        inside += 1
        writing.append(inside)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        inside -= 1

    def worker(name: str) -> Any:
        async def play_it(request: ModelRequest) -> Any:
            if len(request.messages) > 1:
                return say(f"{name} wrote")
            at_work.add(name)
            if len(at_work) == 3:
                everybody.set()
            await everybody.wait()
            return tools(use("Write", name=name))

        return play_it

    names = ["a1", "a2", "a3"]
    parts: dict[str, Any] = {"main": [tools(*map(task, names)), say("done")]}
    parts |= {name: worker(name) for name in names}
    async with make_team(parts, tmp_path, own=[make_tool("Write", write)]) as session:
        events = await play(session, "main")

    assert finished(events).status == "done"
    assert writing == [1, 1, 1]
    starts = [agent for agent, event in by_agent(events, RequestStarted)]
    assert starts[:4] == ["main", "agent-1", "agent-2", "agent-3"]


async def test_a_waiting_task_never_holds_the_lane(tmp_path: Path) -> None:
    """Also where it is in one batch with a call that writes: what it waits for may write meanwhile."""
    parts = {
        "main": [tools(task("writer"), use("Note", name="beside")), say("done")],
        "writer": [tools(use("Write", name="inner")), say("written")],
    }
    own = [make_tool("Write"), make_tool("Note", parallel_safe=True)]
    async with make_team(parts, tmp_path, own=own) as session:
        events = await play(session, "main")

    assert finished(events).status == "done"
    assert {event.batch for event in of(events, ToolStarted) if event.agent_id == "main"} == {0}
    assert ("Write inner", False) in results(events)


async def test_a_model_error_inside_is_an_error_result(tmp_path: Path) -> None:
    """Never text that could be taken for an answer; the parent goes on."""

    def refuses(request: ModelRequest) -> Any:
        raise ModelRejectedError("no such model", kind="not_found_error", status=404)

    async with make_team({"main": [tools(task("bad")), say("done")], "bad": refuses}, tmp_path) as session:
        events = await play(session, "main")

    [(text, is_error)] = results(events)
    assert is_error
    assert "did not finish (model_error): no such model" in text
    assert finished(events).status == "done"
    assert [event.status for event in of(events, AgentFinished)] == ["model_error"]


async def test_a_limit_inside_keeps_what_it_said(tmp_path: Path) -> None:
    """The turns of its type; the parent's own count goes on."""
    parts = {"main": [tools(task("busy")), say("done")], "busy": lambda _: tools(use("Read"), text="so far this")}
    async with make_team(parts, tmp_path, own=[read_like("Read")], limits=Limits(turns=3)) as session:
        events = await play(session, "main")

    [(text, is_error)] = results(events)[-1:]
    assert is_error
    assert text.startswith("so far this\n")
    assert "did not finish (limit): the limit turns = 3 was reached. What it said last is above." in text
    assert finished(events).status == "done"


async def test_a_denial_inside_counts_for_those_above(tmp_path: Path) -> None:
    """The child ends with `denied`, no error; the run does, too, and names the denial."""
    parts = {
        "main": [tools(task("middle")), say("done")],
        "middle": [tools(task("lower", subagent_type="planner")), say("middle says no")],
        "lower": [tools(use("Edit", file_path="/workspace/a")), say("could not")],
    }
    async with make_team(parts, tmp_path, own=[make_tool("Edit", edits=lambda value: True)]) as session:
        events = await play(session, "main")

    assert [event.status for event in of(events, AgentFinished)] == ["denied", "denied"]
    assert finished(events).status == "denied"
    assert [denial["tool_name"] for denial in finished(events).denials] == ["Edit"]
    assert not results(events)[-1][1]


async def test_the_death_of_the_sandbox_inside_ends_the_whole_run(tmp_path: Path) -> None:
    """No result is made up for it, at any level, in the background either."""
    for number, options in enumerate([{}, {"run_in_background": True}]):
        sandbox = FakeSandbox()

        async def dies(value: Named, ctx: ToolContext) -> None:
            sandbox.die()  # noqa: B023
            await ctx.sandbox.exec(["true"])

        parts = {
            "main": [tools(task("middle", **options)), say("done")],
            "middle": [tools(task("lower")), say("no")],
            "lower": [tools(use("Kill")), say("no")],
        }
        folder = tmp_path / str(number)
        folder.mkdir()
        async with make_team(parts, folder, own=[make_tool("Kill", dies)], sandbox=sandbox) as session:
            events = await play(session, "main")

        assert finished(events).status == "sandbox_error"
        assert [event.status for event in of(events, AgentFinished)] == ["sandbox_error", "sandbox_error"]


async def test_an_interrupt_ends_every_agent_and_leaves_every_conversation_valid(tmp_path: Path) -> None:
    """Two levels down a call hangs; each open call has its "interrupted" result."""
    hangs = anyio.Event()

    async def body(value: Named, ctx: ToolContext) -> None:
        hangs.set()
        await anyio.sleep_forever()

    parts = {
        "main": [tools(task("middle"))],
        "middle": [tools(task("lower"))],
        "lower": [tools(use("Hang"))],
    }
    async with make_team(parts, tmp_path, own=[make_tool("Hang", body)]) as session:

        async def stop() -> None:
            await hangs.wait()
            session.interrupt()

        session.tasks.start_soon(stop)
        events = await play(session, "main")

    assert finished(events).status == "interrupted"
    assert [event.status for event in of(events, AgentFinished)] == ["interrupted", "interrupted"]
    for agent, below in (("main", "agent-1"), ("agent-1", "agent-1.1"), ("agent-1.1", None)):
        said = fold(events, agent_id=agent)
        assert [block["content"] for block in said[-1]["content"]] == [interrupted(below).content]
    assert recorded(tmp_path) == [event for event in events if event.recorded]


async def test_now_ends_the_turn_with_its_agents_and_not_the_run(tmp_path: Path) -> None:
    """The next request has the interrupted result, by which the agent can be gone on with, and the message."""
    asked: list[str] = []

    async def waits(request: ModelRequest) -> Any:
        session.queue.put("leave that", Priority.NOW)
        await anyio.sleep_forever()

    def main(request: ModelRequest) -> Any:
        asked.append(heard(request))
        return tools(task("child")) if len(asked) == 1 else say("left")

    async with make_team({"main": main, "child": waits}, tmp_path) as session:
        events = await play(session, "main")

    assert asked[1] == f"{interrupted('agent-1').content}\nleave that"
    assert (finished(events).status, finished(events).text) == ("done", "left")
    assert [event.status for event in of(events, AgentFinished)] == ["interrupted"]


async def test_bad_words_for_a_sub_agent_start_none(tmp_path: Path) -> None:
    """An unknown type names near ones and all; an empty prompt is an invalid call."""
    parts = {"main": [tools(task("x", subagent_type="general"), task(" ")), say("done")]}
    async with make_team(parts, tmp_path) as session:
        events = await play(session, "main")

    texts = {text for text, is_error in results(events) if is_error}
    assert len(texts) == 2
    assert any("Did you mean general-purpose?" in text and "planner" in text for text in texts)
    assert not of(events, AgentStarted)
