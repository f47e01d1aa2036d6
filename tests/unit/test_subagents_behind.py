"""Sub-agents in the background, and messages to sub-agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
from agents_rig import heard, make_team, say, task, tools
from engine_session import Named, finished, make_tool, of, play, read_like, results, use

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.past import load_past, take_up
from sandbox_agent.events import AgentFinished, AgentStarted, JobFinished, JobStarted, Notice, ToolFinished, UserMessage
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Limits

LAUNCHED = '{"status": "async_launched", "agent_id": "agent-1"}'


def message(agent_id: str, words: str, **fields: Any) -> Any:
    return use("SendMessage", **{"to": agent_id, "message": words, **fields})


async def test_one_in_the_background_is_launched_at_once_and_told_later(tmp_path: Path) -> None:
    """The parent's next request has only its id; its report is a message once the parent would stop."""
    asked: list[str] = []
    may_end = anyio.Event()

    def main(request: ModelRequest) -> Any:
        asked.append(heard(request))
        if len(asked) == 1:
            return tools(task("behind", run_in_background=True))
        may_end.set()
        return say(f"answer {len(asked)}")

    async def behind(request: ModelRequest) -> Any:
        await may_end.wait()
        return say("the report")

    async with make_team({"main": main, "behind": behind}, tmp_path) as session:
        events = await play(session, "main")

    assert asked[1] == LAUNCHED
    assert "agent-1" in asked[2]
    assert "\nthe report\n" in asked[2]
    assert (finished(events).status, finished(events).text) == ("done", "answer 3")
    assert [event.job_id for event in of(events, JobStarted)] == ["agent-1"]
    assert [(event.state, event.exit_code) for event in of(events, JobFinished)] == [("exited", None)]
    assert [event.background for event in of(events, AgentStarted)] == [True]
    assert any("waiting for what runs in the background: agent-1" in event.text for event in of(events, Notice))


async def test_one_that_fails_behind_is_told_as_failed(tmp_path: Path) -> None:
    """With its status, and what it said last."""
    parts = {
        "main": [tools(task("behind", run_in_background=True)), say("first"), say("second")],
        "behind": lambda _: tools(use("Read"), text="half of it"),
    }
    async with make_team(parts, tmp_path, own=[read_like("Read")], limits=Limits(turns=3)) as session:
        events = await play(session, "main")

    [told] = [text for event in of(events, UserMessage) if "half of it" in (text := str(event.content[0]["text"]))]
    assert "failed (limit: the limit turns = 3 was reached)" in told
    assert "\nhalf of it\n" in told


async def test_output_looks_earlier_and_stop_ends_it(tmp_path: Path) -> None:
    """Neither leaves a second message behind; one that was stopped can go on."""
    at_work = anyio.Event()

    async def behind(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return tools(use("Read"), text="working on it")
        if "go on" not in heard(request):
            at_work.set()
            await anyio.sleep_forever()
        return say("on with it")

    async def main(request: ModelRequest) -> Any:
        turn = len(request.messages) // 2
        if turn == 1:
            await at_work.wait()
        steps = [
            tools(task("behind", run_in_background=True)),
            tools(use("TaskOutput", task_id="agent-1", block=False)),
            tools(use("TaskStop", task_id="agent-1")),
            tools(message("agent-1", "go on")),
            say("done"),
        ]
        return steps[turn]

    async with make_team({"main": main, "behind": behind}, tmp_path, own=[read_like("Read")]) as session:
        events = await play(session, "main")

    texts = [text for text, _ in results(events) if "Read" not in text]
    assert texts[0] == LAUNCHED
    assert texts[1].startswith("working on it\n[agent-1 is still running")
    assert texts[2].startswith("working on it\n[agent-1 was stopped (by TaskStop)")
    assert texts[3].startswith("on with it")
    assert [event.state for event in of(events, JobFinished)] == ["killed"]
    assert [event.status for event in of(events, AgentFinished)] == ["interrupted", "done"]
    assert finished(events).turns == 5  # nothing more was told


async def test_a_message_to_one_that_runs_is_heard_with_its_next_step(tmp_path: Path) -> None:
    """The call gives at once that it is queued; the answer comes where it was due."""
    at_work, told = anyio.Event(), anyio.Event()

    async def behind(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            at_work.set()
            await told.wait()
            return tools(use("Read", name="x"))
        return say(f"heard {heard(request)}")

    async def main(request: ModelRequest) -> Any:
        turn = len(request.messages) // 2
        if turn == 0:
            return tools(task("behind", run_in_background=True))
        if turn == 1:
            await at_work.wait()
            return tools(message("agent-1", "look here"), message("agent-1", "and there", run_in_background=True))
        told.set()
        return say("done")

    async with make_team({"main": main, "behind": behind}, tmp_path, own=[read_like("Read")]) as session:
        events = await play(session, "main")

    queued = [json.loads(text) for text, _ in results(events) if "queued" in text]
    assert queued == [{"status": "message_queued", "agent_id": "agent-1"}] * 2
    [end] = of(events, AgentFinished)
    assert end.text == "heard Read x\nlook here\nand there"


async def test_one_that_ends_before_it_heard_a_message_says_so(tmp_path: Path) -> None:
    """At its limit, for one; it has the message when it goes on."""
    at_work, told = anyio.Event(), anyio.Event()

    async def behind(request: ModelRequest) -> Any:
        if not at_work.is_set():
            at_work.set()
            await told.wait()
            return tools(use("Read"), text="half of it")
        return say(f"heard {heard(request)}")

    async def main(request: ModelRequest) -> Any:
        turn = len(request.messages) // 2
        if turn == 1:
            await at_work.wait()
        if turn == 2:
            told.set()
        steps = [
            tools(task("behind", run_in_background=True, subagent_type="once")),
            tools(message("agent-1", "look here")),
            tools(use("TaskOutput", task_id="agent-1")),
            tools(message("agent-1", "go on")),
            say("done"),
        ]
        return steps[turn]

    once = {"once": AgentType("once", "d", "i", max_turns=1)}
    async with make_team({"main": main, "behind": behind}, tmp_path, own=[read_like("Read")], types=once) as session:
        events = await play(session, "main")

    texts = [text for text, _ in results(events)]
    assert any("it ended before it heard the last message" in text for text in texts)
    assert texts[-1].startswith("heard Read\nlook here\ngo on\n")


async def test_one_that_has_ended_goes_on_with_all_it_knows(tmp_path: Path) -> None:
    """Two messages in one answer: the first lets it go on, the second is heard meanwhile, by the same agent."""
    asked: list[int] = []

    async def child(request: ModelRequest) -> Any:
        asked.append(len(request.messages))
        if len(asked) == 2:
            await session.ctx.agents.team.members["agent-1"].session.queue.arrived()
        return say(f"answer {len(asked)} to {heard(request)}")

    parts = {
        "main": [tools(task("child")), tools(message("agent-1", "one"), message("agent-1", "two")), say("done")],
        "child": child,
    }
    async with make_team(parts, tmp_path) as session:
        events = await play(session, "main")

    assert asked == [1, 3, 5]
    texts = [text for text, _ in results(events)]
    assert texts[1] == '{"status": "message_queued", "agent_id": "agent-1"}'
    assert texts[2].startswith("answer 3 to two\n")
    assert [event.continued for event in of(events, AgentStarted)] == [False, True]
    assert {event.agent_id for event in of(events, AgentStarted)} == {"agent-1"}


async def test_a_message_to_one_that_is_not_the_own_is_an_error(tmp_path: Path) -> None:
    """Unknown, or another agent's: the text names those there are; nothing starts."""
    parts = {
        "main": [tools(task("middle")), tools(message("agent-1.1", "hi"), message("agent-7", "hi")), say("done")],
        "middle": [tools(task("lower")), tools(message("agent-1", "hi")), say("middle")],
        "lower": [say("lower")],
    }
    async with make_team(parts, tmp_path) as session:
        events = await play(session, "main")

    errors = [(event.agent_id, str(event.content)) for event in of(events, ToolFinished) if event.is_error]
    assert sorted(errors) == [
        ("agent-1", "You have no sub-agent 'agent-1'. Yours are: agent-1.1."),
        ("main", "You have no sub-agent 'agent-1.1'. Yours are: agent-1."),
        ("main", "You have no sub-agent 'agent-7'. Yours are: agent-1."),
    ]
    assert len(of(events, AgentStarted)) == 2


async def test_one_goes_on_after_a_resume_by_another_process(tmp_path: Path) -> None:
    """With its whole conversation, its type, and the number of agents there ever were; new ones get other ids."""
    sessions, session_id = tmp_path, "20260101000000abcdef01"
    folder = sessions / session_id
    folder.mkdir()
    parts = {"main": [tools(task("child", subagent_type="planner")), say("done")], "child": [say("first answer")]}
    async with make_team(parts, folder) as session:
        await play(session, "main")

    past = load_past(sessions, session_id, tmp_path)
    cast = {
        "main": lambda request: [
            tools(message("agent-1", "once more"), task("other")),
            tools(task("too many")),
            say("done"),
        ][len(request.messages) // 2 - 2],
        "child": lambda request: say(f"{len(request.messages)} messages, {heard(request)}"),
        "other": [say("other")],
    }
    async with make_team(cast, folder, past=past, limits=Limits(subagents_total=2)) as session:
        session.journal.conversations |= {"main": past.messages, **past.conversations}
        events = await play(session, "go on")

    started = {event.agent_id: event for event in of(events, AgentStarted)}
    assert started.keys() == {"agent-1", "agent-2"}
    assert (started["agent-1"].agent_type, started["agent-1"].mode, started["agent-1"].continued) == (
        "planner",
        "plan",
        True,
    )
    texts = [text for text, _ in results(events)]
    assert any(text.startswith("3 messages, once more") for text in texts)
    assert "subagents.total of this session is 2" in texts[-1]


async def test_one_that_goes_on_after_a_kill_is_told_once_what_of_its_own_runs_no_more(tmp_path: Path) -> None:
    """Its parent is not told of what it never started."""
    session_id = "20260101000000abcdef01"
    folder = tmp_path / session_id
    folder.mkdir()
    async with make_team({"main": [tools(task("child")), say("done")], "child": [say("first")]}, folder) as session:
        await play(session, "main")
        session.tape.append(
            JobStarted(agent_id="agent-1", parent_id="main", job_id="bash_1", kind="shell", what="make", call_id="c")
        )

    asked: list[str] = []
    for _ in range(2):
        past = load_past(tmp_path, session_id, tmp_path)

        def main(request: ModelRequest) -> Any:
            return say("done") if "agent_id" in heard(request) else tools(message("agent-1", "go on"))

        def child(request: ModelRequest) -> Any:
            asked.append(heard(request))
            return say("went on")

        async with make_team({"main": main, "child": child}, folder, past=past) as session:
            take_up(session, past)
            events = await play(session, "again")
            assert not [
                event for event in of(events, UserMessage) if event.agent_id == "main" and "bash_1" in str(event)
            ]

    assert "bash_1 (`make`)" in asked[0]
    assert asked[0].endswith("\ngo on")
    assert asked[1] == "go on"


async def test_what_a_sub_agent_left_running_ends_with_it(tmp_path: Path) -> None:
    """One that hits its limit while an agent of its own works behind it: nobody would hear of that one."""
    parts = {
        "main": [tools(task("middle")), say("done")],
        "middle": lambda _: tools(task("lower", run_in_background=True)),
        "lower": hang,
    }
    async with make_team(parts, tmp_path, limits=Limits(turns=2)) as session:
        events = await play(session, "main")
        assert session.jobs.running() == ()

    assert finished(events).status == "done"
    assert [event.status for event in of(events, AgentFinished)][-1] == "limit"
    assert {event.state for event in of(events, JobFinished)} == {"killed"}


async def hang(request: ModelRequest) -> Any:
    await anyio.sleep_forever()


async def test_a_sub_agent_waits_for_what_it_started_behind_without_taking_a_place(tmp_path: Path) -> None:
    """With one place for all: at its end, and in TaskOutput. Also where the first agent would let things run on."""
    parts = {
        "main": [tools(task("middle")), tools(task("asks")), say("done")],
        "middle": [tools(task("lower", run_in_background=True)), say("not yet"), say("now I have it")],
        "asks": lambda request: [
            tools(task("lower", run_in_background=True)),
            tools(use("TaskOutput", task_id="agent-2.1", timeout=600_000)),
            say("read it"),
        ][len(request.messages) // 2],
        "lower": lambda _: say("low"),
    }
    async with make_team(parts, tmp_path, limits=Limits(subagents_at_once=1)) as session:
        session.background_wait_s = None
        events = await play(session, "main")

    by_id = {event.agent_id: event.text for event in of(events, AgentFinished)}
    assert by_id == {"agent-1": "now I have it", "agent-1.1": "low", "agent-2": "read it", "agent-2.1": "low"}


async def test_a_run_that_ends_another_way_does_not_wait_for_the_background(tmp_path: Path) -> None:
    """It is ended with the session, whose later part says so; see test_resume_jobs."""
    parts = {"main": lambda _: tools(task("behind", run_in_background=True)), "behind": hang}
    async with make_team(parts, tmp_path, limits=Limits(turns=1)) as session:
        events = await play(session, "main")
        assert [job.id for job in session.jobs.running()] == ["agent-1"]
        await session.jobs.close()
        assert session.jobs.running() == ()

    assert finished(events).status == "limit"


async def test_a_type_with_fewer_tools_has_no_others(tmp_path: Path) -> None:
    """A call of one it has not says why; that is no denial."""
    kinds = {"reader": AgentType("reader", "reads", "You read.", tools=("Read",))}
    parts = {"main": [tools(task("child", subagent_type="reader")), say("done")], "child": child_calls_edit}
    async with make_team(parts, tmp_path, own=[read_like("Read"), make_tool("Edit", never)], types=kinds) as session:
        events = await play(session, "main")

    [(text, is_error), _] = results(events)
    assert is_error
    assert "an agent of the type reader does not have it" in text
    assert finished(events).status == "done"


def child_calls_edit(request: ModelRequest) -> Any:
    return tools(use("Edit")) if len(request.messages) == 1 else say("could not")


async def never(value: Named, ctx: ToolContext) -> None:
    raise AssertionError
