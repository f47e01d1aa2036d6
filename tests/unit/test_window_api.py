"""The window of a model through the real SDK: asked of the API, and taken from what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_session import finished, make_session, make_tool, of, play, use
from model_rig import connected

from sandbox_agent.events import ConversationCompacted, ResultsTrimmed
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import JsonObject, Limits, ToolResult


def long_tool(size_chars: int) -> Tool:
    async def body(value: Any, ctx: Any) -> ToolResult:
        return ToolResult("y" * size_chars)

    return make_tool("Long", body, read_only=True)


async def test_the_models_api_is_asked_once_and_only_for_a_long_conversation() -> None:
    """What it does not say, and an error, is not known."""
    async with connected([{"text": "x"}], window_tokens=1_000_000) as (model, api):
        assert await model.window_tokens(1_000) is None
        assert api.requests == []
        assert [await model.window_tokens(90_000) for _ in range(2)] == [1_000_000] * 2
        assert [received.path for received in api.requests] == ["/v1/models/claude-test"]
        assert await model.window_tokens(90_000, "other") == 1_000_000
    async with connected([{"text": "x"}]) as (model, api):
        assert await model.window_tokens(90_000) is None
    async with connected([{"text": "x"}], models=["another"]) as (model, api):
        assert [await model.window_tokens(90_000) for _ in range(2)] == [None, None]
        assert len(api.requests) == 1


async def test_a_prompt_that_is_too_long_is_shortened_and_sent_again(tmp_path: Path) -> None:
    """The double refuses by its own count, as the API does; every request for a summary fits."""

    def turn(body: JsonObject) -> JsonObject:
        last = str(body["messages"][-1]["content"])
        if "has become long" in last:
            return {"text": "the summary"}
        calls = [block for one in body["messages"] for block in one["content"] if block.get("type") == "tool_use"]
        if "the summary" in str(body["messages"][0]):
            return {"thinking": "nearly", "text": "done"} if len(calls) > 2 else {"tools": [use("Long")]}
        return {"thinking": "hm", "tools": [use("Long", name="n" * 3_000)]}

    async with (
        connected(turn, window_tokens=9_000) as (model, api),
        # What the last calls were given is what makes it long, and no result can be taken out for that.
        make_session(lambda request: model.stream(request), tmp_path, tools=[long_tool(100)]) as session,
    ):
        session.model = model
        events = await play(session)
        assert next(received.refusal for received in api.requests if received.refusal)[0].startswith(
            "prompt is too long"
        )

    assert (finished(events).status, finished(events).text) == ("done", "done")
    assert {one.reason for one in of(events, ConversationCompacted)} <= {"overflow", "full"}
    assert of(events, ConversationCompacted)[0].reason == "overflow"
    assert of(events, ConversationCompacted)[0].window_tokens == 9_000


async def test_usage_of_the_api_decides_when_old_results_go(tmp_path: Path) -> None:
    """Not the length of what was sent."""
    used = {"input_tokens": 300, "cache_read_input_tokens": 150_000, "output_tokens": 100}
    turns = [{"tools": [use("Long")]} for _ in range(7)]
    turns.append({"tools": [use("Long")], "usage": used})
    async with connected([*turns, {"text": "done"}]) as (model, _):
        limits = Limits(context_tokens=200_000)
        async with make_session([{"text": "-"}], tmp_path, tools=[long_tool(50_000)], limits=limits) as session:
            session.model = model
            events = await play(session)
    assert finished(events).status == "done"
    [trimmed] = of(events, ResultsTrimmed)
    assert trimmed.tokens_before > 150_400
    assert len(trimmed.tool_use_ids) == 5
