"""The caps on sub-agents hold for the whole tree, are told, and make no agent wait for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from agents_rig import first_words, make_team, say, task, tools
from engine_session import finished, make_tool, of, play, results, use

from sandbox_agent.events import AgentFinished, AgentStarted, Notice, RunFinished, ToolFinished
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.tools.agents import AgentTask
from sandbox_agent.types import Limits

LEVELS = {"main": "middle", "middle": "lower", "lower": "deeper"}


class Floor:
    """Counts the sub-agents whose request is under way."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def asks_for(self, count: int, below: str, behind: bool) -> Any:
        """An agent that first writes something, then asks for so many agents at once, and reports."""

        async def play_it(request: ModelRequest) -> Any:
            if not first_words(request).startswith("main"):
                self.now += 1
                self.most = max(self.most, self.now)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                self.now -= 1
            turn = len([message for message in request.messages if message["role"] == "assistant"])
            if turn == 0:
                return tools(use("Write", name="own"))
            if turn == 1:
                return tools(*[task(below, run_in_background=behind and number % 2 == 0) for number in range(count)])
            return say("reported")

        return play_it


@pytest.mark.parametrize("behind", [False, True], ids=["waited for", "half of them behind"])
@pytest.mark.parametrize("places", [1, 2, 8])
async def test_a_run_that_asks_for_far_too_many_keeps_to_the_caps(tmp_path: Path, places: int, behind: bool) -> None:
    """Nine on each of three levels: 819 are asked for. 50 are started, none is deeper than two, and it ends."""
    floor = Floor()
    parts = {name: floor.asks_for(9, below, behind) for name, below in LEVELS.items()}
    limits = Limits(subagents_at_once=places)
    async with make_team(parts, tmp_path, own=[make_tool("Write")], limits=limits) as session:
        events = await play(session, "main")
        assert session.jobs.running() == ()
        assert session.rights.lane.statistics().tasks_waiting == 0
        assert session.ctx.agents.team._places.value == places

    assert finished(events).status == "done"
    started = of(events, AgentStarted)
    assert len({event.agent_id for event in started}) == 50
    assert max(event.agent_id.count(".") for event in started) == 1
    assert len(of(events, AgentFinished)) == len(started)
    assert floor.most == places
    errors = {str(event.content).partition(",")[0] for event in of(events, ToolFinished) if event.is_error}
    assert errors == {
        "No sub-agent was started: the limit subagents.total of this session is 50",
        "Task cannot be used here: No sub-agent was started: the limit subagents.depth of this session is 2",
    }
    assert any("(limits.subagents.at_once)" in event.text for event in of(events, Notice))


async def test_none_at_all(tmp_path: Path) -> None:
    """A depth of 0, or none at once: the tools for them are not shown, and a call says why."""
    for number, limits in enumerate([Limits(subagent_depth=0), Limits(subagents_at_once=0)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with make_team({"main": [tools(task("x")), say("done")]}, folder, limits=limits) as session:
            assert session.pool.names() == ("TaskOutput", "TaskStop")
            events = await play(session, "main")
        [(text, is_error)] = results(events)
        assert is_error
        assert "of this session is 0" in text
        assert isinstance(events[-1], RunFinished)


async def test_a_total_of_none_leaves_the_tool_and_says_why(tmp_path: Path) -> None:
    """It is the same as a total that is used up."""
    async with make_team(
        {"main": [tools(task("x")), say("done")]}, tmp_path, limits=Limits(subagents_total=0)
    ) as session:
        events = await play(session, "main")
    [(text, is_error)] = results(events)
    assert is_error
    assert "subagents.total of this session is 0" in text


async def test_an_agent_that_waits_again_before_it_had_its_place_back_takes_none(tmp_path: Path) -> None:
    """Its first call has ended and wants the place, its next one waits already: what that waits for needs the place."""
    async with make_team({"main": [say("done")]}, tmp_path, limits=Limits(subagents_at_once=1)) as session:
        team = session.ctx.agents.team
        one, other, third = (team.start(session, AgentTask("general-purpose", "d", "p")) for _ in range(3))
        await team._enter(one)
        again = anyio.Event()

        async def first_call() -> None:
            async with team.waiting(one.session):
                await team._enter(other)

        async def next_call() -> None:
            async with team.waiting(one.session):
                again.set()
                await team._enter(third)
                team._leave(third)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(first_call)
                while not team._places.statistics().tasks_waiting:
                    await anyio.lowlevel.checkpoint()
                group.start_soon(next_call)
                await again.wait()
                team._leave(other)
        assert one.holds
        team._leave(one)
        assert team._places.value == 1
