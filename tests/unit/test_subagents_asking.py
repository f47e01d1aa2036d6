"""What a person says to one agent's question holds for all agents of the session, and they ask one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from agents_rig import make_team, say, task, tools
from engine_session import Named, finished, make_tool, of, play, results, use

from sandbox_agent.engine import session_hooks
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.engine.queue import Priority
from sandbox_agent.events import AgentFinished, Event, PermissionAsked, PermissionDecided, ToolStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import JsonObject

EDIT = make_tool("Edit", edits=True)
ASKING = load_policy(None)


def edits(*paths: str) -> Any:
    return [tools(*(use("Edit", file_path=path) for path in paths)), say("done")]


class Person:
    """Answers questions; `most_at_once` is how many there were to answer at one time."""

    def __init__(self, answer: ApprovalAnswer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.askers: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self.everybody_waits = anyio.Event()

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(str(request.input["file_path"]))
        self.askers.append(request.agent_id)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await self.everybody_waits.wait()
        self._at_once -= 1
        return self.answer


async def two_agents(folder: Path, person: Person, first: str, second: str) -> list[Event]:
    """Both are at their question before the first is answered."""
    parts = {"main": [tools(task("one"), task("two")), say("done")], "one": edits(first), "two": edits(second)}
    async with make_team(parts, folder, own=[EDIT], policy=ASKING, approver=person) as session:

        async def let_go() -> None:
            while session.rights.asking.statistics().tasks_waiting == 0:
                await anyio.lowlevel.checkpoint()
            person.everybody_waits.set()

        session.tasks.start_soon(let_go)
        return await play(session, "main")


async def test_two_agents_ask_one_after_the_other(tmp_path: Path) -> None:
    """Each gets its own answer, and the question says whose it is."""
    person = Person(ApprovalAnswer(True))
    events = await two_agents(tmp_path, person, "/workspace/a", "/workspace/b")

    assert sorted(person.asked) == ["/workspace/a", "/workspace/b"]
    assert sorted(person.askers) == ["agent-1", "agent-2"]
    assert person.most_at_once == 1
    assert len(of(events, ToolStarted)) == 2 + 2
    order = [type(event).__name__ for event in events if isinstance(event, PermissionAsked | PermissionDecided)][2:]
    assert order == ["PermissionAsked", "PermissionDecided", "PermissionAsked", "PermissionDecided"]


async def test_a_yes_for_the_session_spares_the_question_that_waits_behind_it(tmp_path: Path) -> None:
    """It is decided anew when its turn comes; the record says by which rule."""
    person = Person(ApprovalAnswer(True, scope="session"))
    events = await two_agents(tmp_path, person, "/workspace/a", "/workspace/a")

    assert person.asked == ["/workspace/a"]
    decided = [event for event in of(events, PermissionDecided) if event.tool == "Edit"]
    assert [(event.verdict, event.asked) for event in decided] == [("allow", True), ("allow", False)]
    assert len([event for event in of(events, ToolStarted) if event.tool == "Edit"]) == 2


async def test_a_yes_that_does_not_cover_it_spares_nothing(tmp_path: Path) -> None:
    """A yes is for what was shown; nor does a no spare a question."""
    for number, answer in enumerate([ApprovalAnswer(True, scope="once"), ApprovalAnswer(False)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        person = Person(answer)
        await two_agents(folder, person, "/workspace/a", "/workspace/a")
        assert person.asked == ["/workspace/a"] * 2


async def test_a_yes_for_the_session_holds_for_agents_that_come_later(tmp_path: Path) -> None:
    """And for those above."""
    person = Person(ApprovalAnswer(True, scope="session"))
    person.everybody_waits.set()
    parts = {
        "main": [tools(task("one")), tools(task("two")), *edits("/workspace/a")],
        "one": edits("/workspace/a"),
        "two": edits("/workspace/a"),
    }
    async with make_team(parts, tmp_path, own=[EDIT], policy=ASKING, approver=person) as session:
        events = await play(session, "main")

    assert person.asked == ["/workspace/a"]
    assert {event.agent_id for event in of(events, ToolStarted) if event.tool == "Edit"} == {
        "main",
        "agent-1",
        "agent-2",
    }


async def test_a_yes_for_the_session_does_not_pass_a_stricter_mode(tmp_path: Path) -> None:
    """What the parent may do by now, a child in plan mode may not."""
    person = Person(ApprovalAnswer(True, scope="session"))
    person.everybody_waits.set()
    parts = {
        "main": [edits("/workspace/a")[0], tools(task("child", subagent_type="planner")), say("done")],
        "child": edits("/workspace/a"),
    }
    async with make_team(parts, tmp_path, own=[EDIT], policy=ASKING, approver=person) as session:
        events = await play(session, "main")

    assert person.asked == ["/workspace/a"]
    assert [event.status for event in of(events, AgentFinished)] == ["denied"]


async def test_a_question_that_waits_for_another_can_be_interrupted(tmp_path: Path) -> None:
    """By a `now` to the first agent: neither runs, and the next question is asked."""
    person = Person(ApprovalAnswer(True))

    def main(request: ModelRequest) -> Any:
        turn = len(request.messages) // 2
        return [tools(task("one"), task("two")), edits("/workspace/c")[0], say("done")][turn]

    parts = {"main": main, "one": edits("/workspace/a"), "two": edits("/workspace/b")}
    async with make_team(parts, tmp_path, own=[EDIT], policy=ASKING, approver=person) as session:

        async def now() -> None:
            while session.rights.asking.statistics().tasks_waiting == 0:
                await anyio.lowlevel.checkpoint()
            person.everybody_waits.set()
            session.queue.put("stop", Priority.NOW)

        session.tasks.start_soon(now)
        events = await play(session, "main")

    assert person.asked == [person.asked[0], "/workspace/c"]
    assert [event.agent_id for event in of(events, ToolStarted) if event.tool == "Edit"] == ["main"]
    assert (finished(events).status, finished(events).denials) == ("done", ())


async def test_hooks_are_told_which_agent_it_is(tmp_path: Path) -> None:
    """By the id that the record has, too."""
    seen: list[tuple[str, str]] = []

    async def look(value: Named, ctx: ToolContext) -> None:
        seen.append(("tool", ctx.agent_id))

    async def told(about: JsonObject) -> None:
        seen.append((about["tool_name"], about["agent_id"]))

    parts = {"main": [tools(task("child")), say("done")], "child": [tools(use("Look")), say("done")]}
    async with make_team(parts, tmp_path, own=[make_tool("Look", look)]) as session:
        session_hooks.attach(session, [ProgramHook("told", HookEvent.PRE_TOOL_USE, told)])
        events = await play(session, "main")

    assert seen == [("Task", "main"), ("Look", "agent-1"), ("tool", "agent-1")]
    assert not [text for text, is_error in results(events) if is_error]
