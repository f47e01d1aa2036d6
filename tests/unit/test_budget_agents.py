"""One budget and one window each for the agents of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents_rig import heard, make_team, say, task, tools
from engine_session import finished, make_tool, of, play, use

from sandbox_agent.engine.history import fold
from sandbox_agent.events import AgentFinished, ConversationCompacted, LimitReached
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.tape import read_tape
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import Limits, ToolResult, Usage


def spends(count: int, *, then: Any) -> Any:
    return {**then, "usage": {"input_tokens": count}}


async def test_all_agents_use_up_one_budget_and_each_is_told(tmp_path: Path) -> None:
    """The sub-agent ends by the limit, its parent is told why, and ends by it as well; what all used is summed up."""
    parent: list[ModelRequest] = []

    def main(request: ModelRequest) -> Any:
        parent.append(request)
        return spends(100, then=tools(task("sub")))

    def sub(request: ModelRequest) -> Any:
        return spends(400, then=tools(use("Look", name="a")))

    look = make_tool("Look", read_only=True)
    async with make_team({"main": main, "sub": sub}, tmp_path, own=[look], limits=Limits(tokens=1_000)) as session:
        events = await play(session, "main")

    end = finished(events)
    [agent] = of(events, AgentFinished)
    assert (agent.status, agent.usage, agent.turns) == ("limit", Usage(1_200), 3)
    assert (end.status, end.usage, end.turns) == ("limit", Usage(1_300), 1)
    assert end.error == "the limit tokens = 1,000 was reached (1,300 were used)"
    assert [one.agent_id for one in of(events, LimitReached)] == [agent.agent_id, "main"]
    told = [
        block["text"]
        for one in session.journal.conversation(agent.agent_id)
        for block in one["content"]
        if "text" in block
    ]
    assert any(text.startswith("900 of the 1,000 tokens") for text in told)
    assert len(parent) == 1


async def test_a_sub_agents_conversation_is_compacted_on_its_own(tmp_path: Path) -> None:
    """The parent's stays as it is, and the record gives both."""

    async def body(value: Any, ctx: Any) -> ToolResult:
        return ToolResult("z" * 3_000)

    long: Tool = make_tool("Long", body, read_only=True)

    def sub(request: ModelRequest) -> Any:
        if "has become long" in heard(request):
            return say("what sub did")
        done = "what sub did" in str(request.messages[0])
        return say("reported") if done else tools(use("Long", name="b"))

    def main(request: ModelRequest) -> Any:
        return say("end") if len(request.messages) > 1 else tools(task("sub"))

    limits = Limits(context_tokens=6_000)
    async with make_team({"main": main, "sub": sub}, tmp_path, own=[long], limits=limits) as session:
        events = await play(session, "main")
        assert finished(events).status == "done"
        [compaction] = of(events, ConversationCompacted)
        assert compaction.agent_id != "main"
        read = [entry.event for entry in read_tape(tmp_path / "events.jsonl").entries]
        for agent_id in ("main", compaction.agent_id):
            assert fold(read, agent_id=agent_id) == session.journal.conversation(agent_id)
