"""What a person changes between runs, where there are sub-agents: they go on with it, and lose nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from agents_rig import heard, make_team, say, task, tools
from engine_session import Named, finished, make_session, make_tool, play, results, use

from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.steering import clear, set_mode, set_model
from sandbox_agent.engine.undoing import undo_here
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.chat_talk import Talk
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.models.prices import Prices
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Limits, Mode, Price

OTHER = """
name: other
turns:
  - tools: [{SendMessage: {to: agent-1, message: "and now?"}}]
  - text: heard
agents:
  helper: [{text: said by the other model}]
"""
SPEAKS = {"do it": [tools(task("helper")), say("done")], "helper": [say("said by the first model")]}


def script(folder: Path, text: str = OTHER) -> str:
    path = folder / "other.yaml"
    path.write_text(text)
    return f"script:{path}"


def member(session: Session, agent_id: str) -> Session:
    found: Session = session.ctx.agents.team.members[agent_id].session  # type: ignore[union-attr]
    return found


async def test_another_model_needs_a_price_of_its_own_where_the_cost_is_limited(tmp_path: Path) -> None:
    """It is looked up by its whole name; without one the model stays."""
    async with make_session([say("hi")], tmp_path, limits=Limits(cost_usd=1.0)) as session:
        before = session.model
        with pytest.raises(ConfigError, match="no price is known for the model script:other"):
            await set_model(session, script(tmp_path))
        assert session.model is before
        session.budget.prices = Prices([("script:other", Price(1, 1, 1, 1, 1))])
        await set_model(session, script(tmp_path))
        assert session.model.name == "script:other"


async def test_an_agent_that_has_ended_goes_on_with_the_model_of_now(tmp_path: Path) -> None:
    """The one it had is closed."""
    async with make_team(SPEAKS, tmp_path) as session:
        await play(session)
        await set_model(session, script(tmp_path))
        events = await play(session, "once more")

    assert finished(events).status == "done"
    assert "said by the other model" in results(events)[0][0]


async def test_an_agent_in_the_background_ends_with_the_model_that_it_has(tmp_path: Path) -> None:
    """Which is closed then, and not while it answers."""
    go_on, closed = anyio.Event(), anyio.Event()

    async def helper(request: ModelRequest) -> Any:
        await go_on.wait()
        assert not closed.is_set()
        return say("found")

    async def close() -> None:
        closed.set()

    parts: dict[str, Any] = {"do it": [tools(task("helper", run_in_background=True)), say("started")], "helper": helper}
    async with make_team(parts, tmp_path) as session:
        session.background_wait_s = None
        session.model.aclose = close  # type: ignore[method-assign]
        await play(session)
        await set_model(session, script(tmp_path))
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        with anyio.fail_after(5):
            await closed.wait()
        assert session.jobs.get("agent-1", "main").tail == "found"  # type: ignore[union-attr]


async def test_an_agent_is_in_the_mode_of_its_parent_unless_its_type_has_one(tmp_path: Path) -> None:
    """A change holds for calls that are under way, and for agents that go on."""
    set_to: list[Mode] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        if value.name == "first":
            set_mode(session, Mode.ACCEPT_EDITS)

    edits = [use("Touch", name="first"), use("Edit", file_path="/workspace/a")]
    helper = [tools(*edits), say("did it")]
    parts: dict[str, Any] = {
        "do it": [tools(task("helper"), task("helper", subagent_type="planner")), say("done")],
        "helper": helper,
    }
    own = [make_tool("Touch", body, read_only=True), make_tool("Edit", edits=True)]
    async with make_team(parts, tmp_path, own=own, policy=load_policy(None)) as session:
        events = await play(session)
        set_to += [*member(session, "agent-1").modes, *member(session, "agent-2").modes]

    assert set_to == [Mode.ACCEPT_EDITS, Mode.PLAN, Mode.ACCEPT_EDITS]
    said = [event for event in results(events) if event[0].startswith(("Edit", "Permission"))]
    assert [is_error for _, is_error in said] in ([False, True], [True, False])


async def test_an_undo_is_of_all_agents(tmp_path: Path) -> None:
    """What they know of files counts no longer, they start in a folder that is there, and are told when they go on."""
    asked: list[str] = []

    def helper(request: ModelRequest) -> Any:
        asked.append(heard(request))
        return say("looked")

    async def undo(to: int | None, *, rewind: bool) -> Any:
        return SimpleNamespace(target=SimpleNamespace(number=3), changed=2)

    again = [tools(use("SendMessage", to="agent-1", message="and now?")), say("done")]
    parts: dict[str, Any] = {"do it": [tools(task("helper")), say("done"), *again], "helper": helper}
    async with make_team(parts, tmp_path) as session:
        await play(session)
        agent = member(session, "agent-1")
        agent.ctx.cwd, agent.ctx.known_files["/workspace/a"] = "/workspace/gone", "0" * 64
        session.checkpoints = SimpleNamespace(undo=undo, nodes={})  # type: ignore[assignment]
        await undo_here(session, None, rewind=False)
        session.checkpoints = None
        assert (agent.ctx.cwd, agent.ctx.known_files) == ("/workspace", {})
        await play(session, "once more")

    assert "step 3" in asked[1]
    assert asked[1].endswith("and now?")


async def test_a_fresh_conversation_has_the_whole_window(tmp_path: Path) -> None:
    """How long the one before was after its summary says nothing of it."""
    async with make_session([say("hi")], tmp_path) as session:
        session.window.floor_tokens = 180_000
        assert not session.window.is_full(170_000, 200_000)
        clear(session)
        assert session.window.is_full(170_000, 200_000)


async def test_a_message_that_was_delivered_is_not_hurried_again(tmp_path: Path) -> None:
    """Also where another one waits by now."""
    async with make_session([say("hi")], tmp_path) as session:
        talk = Talk(session)
        talk.say("first")
        session.queue.take(Priority.NEXT)
        talk.say("second")

        assert talk.texts_waiting() == ["second"]
        assert talk.hurry()
        assert [str(one.content[0]["text"]) for one in session.queue.take(Priority.NOW)] == ["second"]
