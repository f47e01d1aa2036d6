"""A record that was cut anywhere, as `kill -9` cuts it: the session goes on, and so does each of its agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from agents_rig import heard, make_team, say, task, tools
from engine_session import finished, make_tool, of, play, read_like, use
from frontend_events import STARTED
from jobs_rig import Gates

from sandbox_agent.engine.history import fold
from sandbox_agent.engine.past import Past, load_past, take_up
from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    ConversationCompacted,
    Event,
    FolderDrifted,
    JobFinished,
    JobStarted,
    ToolFinished,
    UserMessage,
)
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tape import read_tape
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.types import JsonObject, Usage

ID = "20260101000000abcdef01"
OWN = (read_like("Read"), make_tool("Write"), BASH)
PARTS = {
    "behind": [tools(use("Read", name="b")), say("report of the one behind")],
    "middle": [tools(task("lower"), use("Write", name="m")), say("middle is done")],
    "lower": [tools(use("Read", name="l"), use("Read", name="m")), say("lower is done")],
}


async def a_record(folder: Path) -> list[bytes]:
    """Lines of a run with agents on two levels and behind, a command behind, a message, drift and a compaction."""
    step = 0

    def main(request: ModelRequest) -> Any:
        nonlocal step
        step += 1
        if step == 4:
            short = ({"role": "user", "content": [{"type": "text", "text": "main, in short"}]},)
            session.emit(compacted(short))
        bash = use("Bash", command="wait-for ever", run_in_background=True)
        steps = [
            tools(use("Read", name="x"), task("behind", run_in_background=True), bash),
            tools(task("middle"), task("lower"), text="now these"),
            tools(use("TaskOutput", task_id="agent-1"), use("SendMessage", to="agent-2", message="middle again")),
            tools(use("Write", name="last")),
            say("done"),
        ]
        if step == 2:
            session.emit(FolderDrifted(changed=({"path": "a", "kind": "modified", "state": "s"},), changed_count=1))
            session.queue.put("look here, too")
        return steps[step - 1]

    middle = [*PARTS["middle"], say("once more")]
    sandbox = FakeSandbox(programs={"wait-for": Gates()})
    async with make_team({"main": main, **PARTS, "middle": middle}, folder, own=OWN, sandbox=sandbox) as session:
        session.background_wait_s = None
        session.emit(STARTED)
        assert finished(await play(session, "main")).status == "done"
        await session.jobs.close()
    return (folder / "events.jsonl").read_bytes().splitlines(keepends=True)


def compacted(messages: tuple[JsonObject, ...]) -> ConversationCompacted:
    return ConversationCompacted(
        messages=messages, reason="full", tokens_before=9, tokens_after=1, window_tokens=10, model="m", usage=Usage()
    )


def goes_on(agents: Sequence[AgentStarted], agent_id: str) -> Any:
    """An agent that has every agent of its own go on, all at once, and then ends."""
    below = dict.fromkeys(one.agent_id for one in agents if one.parent_id == agent_id)

    def play_it(request: ModelRequest) -> Any:
        if below and "go on now" in heard(request):
            return tools(*[use("SendMessage", to=one, message=f"go on now, {one}") for one in below])
        return say(f"{agent_id} went on")

    return play_it


async def gone_on_with(folder: Path, past: Past) -> list[Event]:
    """What happens when the session is resumed and every agent of it goes on. Each request is checked as the API would
    check it."""

    def any_agent(request: ModelRequest) -> Any:
        words = heard(request)
        agent_id = words.rpartition("go on now, ")[2].strip() if "go on now" in words else ""
        return goes_on(past.agents, agent_id)(request) if agent_id else say("went on")

    async with make_team({"": any_agent}, folder, own=OWN, past=past) as session:
        session.emit(STARTED)
        take_up(session, past)
        events = await play(session, "go on now, main")
        for agent_id, messages in session.journal.conversations.items():
            assert fold(events_in(folder), agent_id=agent_id) == messages
    return events


def told_of_jobs(events: Sequence[Event]) -> list[str]:
    texts = [str(event.content[0]["text"]) for event in of(events, UserMessage) if event.agent_id == "main"]
    return [text for text in texts if "bash_" in text or "agent-1" in text]


async def test_a_record_cut_anywhere_goes_on(tmp_path: Path) -> None:
    """After each event, and in the middle of each line: at most one warning, every conversation is one that the API
    takes, what ran in the background is told once and ends once, and the next resume finds the record whole."""
    (tmp_path / "whole").mkdir()
    lines = await a_record(tmp_path / "whole")
    assert {b'"agent_finished"', b'"job_finished"', b'"conversation_compacted"', b'"folder_drifted"'} <= {
        b'"' + line.partition(b'"type":"')[2].partition(b'"')[0] + b'"' for line in lines
    }
    folder = tmp_path / ID
    folder.mkdir()
    gone_on: set[str] = set()
    for number in range(1, len(lines) + 1):
        record = b"".join(lines[:number])
        half = lines[number][: len(lines[number]) // 2] if number < len(lines) else b'{"seq":'
        past, damaged = check_reading(folder, record, half)
        leads_to = repr((past.conversations, past.missing, past.agents, past.jobs))
        if leads_to not in gone_on:  # most events change nothing of what a session goes on from
            gone_on.add(leads_to)
            with anyio.fail_after(20):
                await check_going_on(folder, record, past)
                if len(gone_on) % 5 == 0:
                    await check_going_on(folder, record + half, damaged)
    assert len(gone_on) > 20


def check_reading(folder: Path, record: bytes, half: bytes) -> tuple[Past, Past]:
    """The session as it is read from a record, and from one that has a part of its next line besides."""
    path = folder / "events.jsonl"
    path.write_bytes(record)
    past = load_past(folder.parent, ID, folder)
    assert past.warning is None or ("damaged" not in past.warning and "broken" not in past.warning)
    given = {event.call_id: event.content for event in of(events_in(folder), ToolFinished)}
    for messages in past.conversations.values():
        for block in (block for message in messages for block in message["content"]):
            if block.get("tool_use_id") in given:
                assert block["content"] == given[block["tool_use_id"]]

    path.write_bytes(record + half)
    damaged = load_past(folder.parent, ID, folder)
    assert "1 damaged line(s) left out" in (damaged.warning or "")
    assert "\n" not in (damaged.warning or "")
    assert (damaged.conversations, damaged.missing, damaged.jobs) == (past.conversations, past.missing, past.jobs)
    return past, damaged


def events_in(folder: Path) -> list[Event]:
    return [entry.event for entry in read_tape(folder / "events.jsonl").entries]


async def check_going_on(folder: Path, record: bytes, past: Past) -> None:
    (folder / "events.jsonl").write_bytes(record)
    events = await gone_on_with(folder, past)

    assert finished(events).status == "done"
    went_on = {event.agent_id for event in of(events, AgentFinished) if event.status == "done"}
    assert went_on == {agent.agent_id for agent in past.agents}
    told = told_of_jobs(events)
    assert len(told) == bool(past.jobs.gone)
    assert all(job.job_id in told[0] for job in past.jobs.gone)

    again = load_past(folder.parent, ID, folder)
    assert (again.missing, again.jobs.gone, again.jobs.ends) == ((), (), ())
    assert ("completed" in (again.warning or ""), "broken" in (again.warning or "")) == (False, False)
    ends = Counter((event.job_id, event.call_id) for event in of(events_in(folder), JobFinished))
    assert ends == Counter((event.job_id, event.call_id) for event in of(events_in(folder), JobStarted))
    assert set(ends.values()) <= {1}
