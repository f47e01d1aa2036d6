"""Random answers that break at any byte, through the real SDK: what runs, and what a record gives wherever it ends.

More rounds: `EARLY_ROUNDS=2000 pytest tests/unit/test_early_property.py`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, use
from model_rig import KEY

from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.past import load_past
from sandbox_agent.events import (
    AssistantMessage,
    CallDiscarded,
    Event,
    PermissionDecided,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
)
from sandbox_agent.models.anthropic import create
from sandbox_agent.models.retry import Retry
from sandbox_agent.policy.load import load_policy
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.testing.api_rules import check_request
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import JsonObject

ROUNDS = int(os.environ.get("EARLY_ROUNDS", "25"))
TURNS = 8
ID = "20260101000000abcdef01"
TOOL: JsonObject = {"name": "Read", "description": "d", "input_schema": {"type": "object"}}
SAFE = {"Read", "Grep"}


class Script:
    """Answers of all kinds, half of them broken somewhere; then the last word."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.left = TURNS

    def __call__(self, body: JsonObject) -> dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            return {"text": "done"}
        draw = self.draw
        turn: dict[str, Any] = {"chunk_chars": draw.choice((1, 3, 24))}
        if draw.random() < 0.3:
            turn["thinking"] = "hm " * draw.randrange(1, 4)
        if draw.random() < 0.5:
            turn["text"] = "some words"
        turn["tools"] = [self.call() for _ in range(draw.randrange(0, 6))]
        if draw.random() < 0.15:
            turn["stop_reason"] = draw.choice(("max_tokens", "end_turn", "pause_turn", "tomorrow"))
        if draw.random() < 0.5:
            turn |= self.fault()
        return turn

    def call(self) -> dict[str, Any]:
        draw = self.draw
        tool = draw.choice(("Read", "Read", "Read", "Grep", "Grep", "Write", "Nobody", "Asked"))
        if draw.random() < 0.1:
            return {"name": tool, "input": draw.choice(("", "{", '{"name": 1', "[]", "null"))}
        if draw.random() < 0.1:
            return use(tool, other=1)
        return use(tool, name=f"{draw.randrange(10**9)}")

    def fault(self) -> dict[str, Any]:
        draw = self.draw
        kind = draw.choice(("reset", "eof", "error", "raw"))
        raw = draw.choice(("data: {\n\n", "event: x\ndata: {cut\n\n", ": quiet\n\n", "\n\n"))
        return {"fault": kind, "after": draw.randrange(40), "part_bytes": draw.randrange(160), "raw": raw}


async def play_round(seed: int, folder: Path) -> tuple[list[Event], list[str], ApiDouble, list[JsonObject]]:
    """The events, the names of the calls that ran, the double, and the conversation in the end."""
    ran: list[str] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        ran.append(value.name)

    tools = [read_like("Read", body), read_like("Grep", body), make_tool("Write", body), make_tool("Asked", body)]
    policy = load_policy(None, allow=["Read", "Grep", "Write"], ask=["Asked"])

    async def no_wait(seconds: float) -> None:
        pass

    async with (
        ApiDouble(Script(seed)) as api,
        make_session([{"text": "x"}], folder, tools=tools, policy=policy) as session,
    ):
        session.model = create(
            "claude-test",
            environ={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.base_url},
            retry=Retry(max_attempts=TURNS + 2, sleep=no_wait),
        )
        events = await play(session)
        await session.model.aclose()
        return events, ran, api, list(session.messages)


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_only_reads_run_for_nothing_and_nothing_runs_twice(tmp_path: Path, seed: int) -> None:
    """Whatever breaks where: each call of an answer that counts runs once, and of one that does not, at most reads run;
    each of those is told as discarded, once. Every request is one that the API takes."""
    sessions = tmp_path / "sessions"
    folder = sessions / ID
    folder.mkdir(parents=True)
    events, ran, api, messages = await play_round(seed, folder)

    assert finished(events).status in ("done", "denied", "failed")
    assert all(not received.refusal for received in api.requests)
    good = {
        str(b["id"]) for event in of(events, AssistantMessage) if event.stop_reason == "tool_use" for b in calls(event)
    }
    started = of(events, ToolStarted)
    discarded = [event.call_id for event in of(events, CallDiscarded)]
    assert max(Counter(event.call_id for event in started).values(), default=0) <= 1
    named = [name for name in ran if name]
    assert len(named) == len(set(named))
    assert sorted(discarded) == sorted(event.call_id for event in started if event.call_id not in good)
    assert {event.tool for event in started if event.call_id not in good} <= SAFE
    allowed = {event.call_id for event in of(events, PermissionDecided) if event.verdict == "allow"}
    assert {event.call_id for event in started} <= allowed
    results = {b["tool_use_id"]: b for event in of(events, ToolResultsMessage) for b in event.content}
    for event in started:
        if event.call_id in good:
            assert results[event.call_id]["content"] == f"{event.tool} {event.input.get('name', '')}".strip()
    every_call = [str(b["id"]) for event in of(events, AssistantMessage) for b in calls(event)]
    assert every_call == list(results)
    assert recorded(folder) == [event for event in events if event.recorded]
    kill_anywhere(sessions, messages, random.Random(seed))


def calls(event: AssistantMessage) -> Sequence[JsonObject]:
    return [block for block in event.content if block["type"] == "tool_use"]


def kill_anywhere(sessions: Path, messages: list[JsonObject], draw: random.Random) -> None:
    """A record that ends in the middle of any line gives a conversation that the API takes, with results that were
    given and none that were discarded."""
    path = sessions / ID / "events.jsonl"
    whole = path.read_bytes()
    assert load_past(sessions, ID, sessions).messages == messages
    for size in (draw.randrange(len(whole)) for _ in range(12)):
        path.write_bytes(whole[:size])
        events = recorded(path.parent)
        past = load_past(sessions, ID, sessions)
        said = [*past.messages, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
        check_request({"model": "m", "max_tokens": 9, "messages": said, "tools": [TOOL]})
        given: dict[str, Any] = {}
        for event in events:
            if isinstance(event, ToolFinished):
                given[event.call_id] = event.content
            elif isinstance(event, CallDiscarded):
                given.pop(event.call_id, None)
        for block in (block for message in past.missing for block in message.content):
            assert block["content"] == given.get(block["tool_use_id"], INTERRUPTED)
