"""What the Anthropic model sends: cache marks, no empty text, nothing of the caller's changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import pytest
from model_rig import GOOD, KEY, REQUEST, TASK, TOOL, ask, collect, connected, followed_by, result

from sandbox_agent.errors import ModelRejectedError
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.models.outgoing import request_body
from sandbox_agent.types import JsonObject


def marks(body: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Where the marks are: the type or name of the marked thing, and the mark."""
    found = [(tool["name"], tool["cache_control"]) for tool in body.get("tools", ()) if "cache_control" in tool]
    blocks = [("system", block) for block in body.get("system", ())]
    blocks += [
        (f"messages.{n}", b)
        for n, m in enumerate(body["messages"])
        if isinstance(m["content"], list)
        for b in m["content"]
    ]
    return found + [
        (f"{place}:{block['type']}", block["cache_control"]) for place, block in blocks if "cache_control" in block
    ]


LONG = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}


def test_system_tools_and_the_last_user_message_are_marked() -> None:
    """The first request has three marks."""
    body = request_body(REQUEST, "m")

    assert marks(body) == [("Read", LONG), ("system:text", LONG), ("messages.0:text", SHORT)]


def test_the_last_two_user_messages_are_marked_in_a_long_conversation() -> None:
    """Four marks in all, the most there may be; older messages have none."""
    answer: JsonObject = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}],
    }
    results: JsonObject = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}] * 3}
    messages = (TASK, answer, results, answer, results)
    body = request_body(ModelRequest(messages=messages, system=REQUEST.system, tools=(TOOL, TOOL)), "m")

    expected = [
        ("Read", LONG),
        ("system:text", LONG),
        ("messages.2:tool_result", SHORT),
        ("messages.4:tool_result", SHORT),
    ]
    assert expected == marks(body)
    assert "cache_control" in body["messages"][4]["content"][-1]
    assert "cache_control" in body["tools"][-1]


def test_the_callers_own_marks_count() -> None:
    """With marks of the caller's there are still no more than four."""
    marked = {"type": "text", "text": "x", "cache_control": SHORT}
    messages = ({"role": "user", "content": [marked, marked, marked, {"type": "text", "text": "y"}]},)
    body = request_body(ModelRequest(messages=messages, system=REQUEST.system, tools=(TOOL,)), "m")

    assert len(marks(body)) == 4


def test_marks_never_change_the_callers_request() -> None:
    """The history is the engine's; what is sent is a copy where it differs."""
    request = ModelRequest(
        messages=(TASK, {"role": "assistant", "content": "x "}), system=REQUEST.system, tools=(TOOL,)
    )
    before = copy.deepcopy(request)
    request_body(request, "m")

    assert before == request


def test_a_mark_never_sits_on_thinking_or_empty_text() -> None:
    """It goes to the block before."""
    content = [{"type": "text", "text": "x"}, {"type": "thinking", "thinking": "t", "signature": "s"}]
    content += [{"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": " \n"}]
    body = request_body(ModelRequest(messages=({"role": "user", "content": content},)), "m")

    assert marks(body) == [("messages.0:text", SHORT)]
    assert body["messages"][0]["content"][0]["cache_control"] == SHORT


def test_text_as_a_plain_string_is_marked_as_a_block() -> None:
    """A message whose content is a string can carry a mark only as a block."""
    body = request_body(ModelRequest(messages=({"role": "user", "content": "hi"},)), "m")

    assert body["messages"][0]["content"] == [{"type": "text", "text": "hi", "cache_control": SHORT}]


async def test_an_empty_text_block_is_never_sent() -> None:
    """Wherever one may hide: system, answers, results, messages of nothing else, and the end of a prefill."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    failed = {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {}}
    empty = {"type": "text", "text": " \n"}
    messages: tuple[JsonObject, ...] = (
        {"role": "user", "content": [empty, *TASK["content"]]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}, call, failed]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [empty]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "", "is_error": True},
                empty,
            ],
        },
        {"role": "assistant", "content": [empty]},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": "to be continued "}]},
    )
    async with connected([GOOD]) as (model, api):
        await ask(model, ModelRequest(messages=messages, tools=(TOOL,), system=(empty,)))

    body = api.message_bodies[0]
    assert "system" not in body
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant"]
    assert [block["content"] for block in body["messages"][2]["content"]] == ["", "(no output)"]
    assert body["messages"][3]["content"][0]["text"] == "to be continued"


async def test_half_a_surrogate_pair_does_not_end_the_run() -> None:
    """JSON can hold one in a tool input, UTF-8 cannot carry it back, so it goes as a replacement character."""
    turn = {"tools": [{"name": "Read", "input": '{"path": "\\ud83d x \\ud83d\\ude00"}'}]}
    async with connected([turn, GOOD]) as (model, api):
        answer = await ask(model)
        await ask(model, followed_by(answer, result(answer.content[0], "text \udcff")))

    assert answer.malformed == {}
    sent = api.message_bodies[1]["messages"]
    assert sent[1]["content"][0]["input"]["path"] == "\ufffd x \U0001f600"
    assert sent[2]["content"][0]["content"] == "text \ufffd"


async def test_what_is_no_json_is_refused_and_not_retried() -> None:
    """A tool schema with NaN in it is our own fault; another try would be the same."""
    bad = {**TOOL, "input_schema": {"type": "object", "properties": {"n": {"type": "number", "default": float("nan")}}}}
    async with connected([GOOD]) as (model, api):
        with pytest.raises(ModelRejectedError, match="JSON"):
            await collect(model, ModelRequest(messages=(TASK,), tools=(bad,)))

    assert api.requests == []


async def test_a_long_conversation_is_accepted_by_the_strict_double() -> None:
    """Thirty turns of parallel calls with thinking, errors and images go through without one refusal."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    contents: list[Callable[[JsonObject], JsonObject]] = [
        lambda call: {"type": "tool_result", "tool_use_id": call["id"], "content": "ok"},
        lambda call: {"type": "tool_result", "tool_use_id": call["id"], "content": "no", "is_error": True},
        lambda call: {"type": "tool_result", "tool_use_id": call["id"], "content": [picture]},
    ]
    turn = {"thinking": "hm", "text": "on", "tools": [{"Read": {"n": n}} for n in range(3)]}
    messages: list[JsonObject] = [TASK]
    async with connected([*[turn] * 30, GOOD]) as (model, api):
        for _ in range(30):
            answer = await ask(model, ModelRequest(messages=tuple(messages), tools=(TOOL,), system=REQUEST.system))
            calls = [block for block in answer.content if block["type"] == "tool_use"]
            results = [make(call) for make, call in zip(contents, calls, strict=True)]
            messages += [
                {"role": "assistant", "content": list(answer.content)},
                {"role": "user", "content": [*results, {"type": "text", "text": "and this"}]},
            ]
        await ask(model, ModelRequest(messages=tuple(messages), tools=(TOOL,), system=REQUEST.system))

    assert len(api.requests) == 31
    assert [received.refusal for received in api.requests if received.refusal] == []


async def test_a_request_is_the_one_the_sdk_would_make() -> None:
    """The call below `messages.create` that is used sends the same headers and the same body."""
    async with connected([GOOD, GOOD]) as (model, api):
        await ask(model)
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=api.base_url, timeout=30.0, max_retries=0) as client:
            stream: Any = await client.messages.create(**api.message_bodies[0])
            async with stream:
                async for _ in stream:
                    pass
    ours, theirs = api.requests

    assert theirs.body == ours.body
    assert theirs.headers == ours.headers
