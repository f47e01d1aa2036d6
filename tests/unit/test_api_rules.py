"""The rules of the API double: it takes what the real API takes and refuses what that refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sandbox_agent.models.script_player import sign_thinking
from sandbox_agent.testing.api_refusal import Refused
from sandbox_agent.testing.api_rules import check_request
from sandbox_agent.types import JsonObject

PNG: JsonObject = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def call(name: str) -> JsonObject:
    return {"type": "tool_use", "id": name, "name": "Read", "input": {}}


def result(name: str, **more: Any) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": name, "content": "ok", **more}


def text(words: str, **more: Any) -> JsonObject:
    return {"type": "text", "text": words, **more}


def user(*blocks: JsonObject) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: JsonObject) -> JsonObject:
    return {"role": "assistant", "content": list(blocks)}


def tool(name: str = "Read", **schema: Any) -> JsonObject:
    return {"name": name, "description": "d", "input_schema": {"type": "object", **schema}}


def answered(**result_keys: Any) -> JsonObject:
    """A request whose one call has a result with these keys."""
    return body(HI, assistant(call("a")), user(result("a", **result_keys)))


def called(**call_keys: Any) -> JsonObject:
    """A request whose one call has these keys."""
    use = call("a") | call_keys
    return body(HI, assistant(use), user(result(use["id"])))


def thinking(words: str) -> JsonObject:
    return {"type": "thinking", "thinking": words, "signature": sign_thinking(words)}


def body(*messages: JsonObject, **more: Any) -> JsonObject:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), "tools": [tool()], **more}


MARK = {"cache_control": {"type": "ephemeral"}}
LONG_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
HI = user(text("hi"))
PAIR = (HI, assistant(call("a"), call("b")))

GOOD = body(
    user(text("do it")),
    assistant(thinking("hm"), text("on it"), call("a"), call("b")),
    user(result("b"), result("a", content=[{"type": "image", "source": PNG}, text("see")]), text("by the way")),
    user(text("one more")),
    assistant({"type": "redacted_thinking", "data": "x"}, call("c")),
    user(result("c", content="no", is_error=True, **MARK)),
    {"role": "assistant", "content": "so"},
    {"role": "user", "content": "go on"},
    system=[text("be good", **LONG_MARK)],
    tools=[
        tool("Read"),
        {**tool("Write", properties={"a": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {}}}), **LONG_MARK},
    ],
    stream=True,
    tool_choice={"type": "auto"},
)


def test_a_well_formed_conversation_is_taken() -> None:
    """Parallel calls, results in any order, text behind them, neighbours of one role, images, thinking, marks."""
    check_request(GOOD)


def without(key: str) -> JsonObject:
    return {name: value for name, value in GOOD.items() if name != key}


BAD: list[tuple[JsonObject, str]] = [
    # the request
    (without("model"), "model: Field required"),
    (without("max_tokens"), "max_tokens: Field required"),
    (without("messages"), "messages: Field required"),
    (body(HI, max_tokens=0), "max_tokens"),
    (body(HI, max_tokens="9"), "max_tokens: Input should be a valid integer"),
    (body(HI, stream="yes"), "stream"),
    (body(HI, colour="red"), "colour: Extra inputs are not permitted"),
    (body(HI, system=[text(" ")]), "system: text content blocks must be non-empty"),
    (body(HI, system=[{"type": "image"}]), "system.0"),
    (body(HI, tool_choice={"type": "tool", "name": "Nope"}), "'Nope' not found"),
    (body(HI, tool_choice={"type": "auto"}, tools=[]), "only be specified while providing tools"),
    # the messages
    (body(), "at least one message"),
    (body(assistant(text("x"))), "first message must use"),
    (body({"role": "system", "content": "x"}), "messages.0.role: Unexpected role 'system'"),
    (body({"role": "user", "content": ""}), "messages.0: text content blocks must contain non-whitespace"),
    (body(user()), "messages.0: all messages must have non-empty content"),
    (body(HI, assistant(), HI), "messages.1: all messages must have non-empty content"),
    (body({**HI, "name": "x"}), "messages.0.name: Extra inputs"),
    (body({"role": "user"}), "messages.0.content: Field required"),
    (body(user(text("x"), text(""))), "messages.0.content.1: text content blocks must be non-empty"),
    (body(user(text(" \n"))), "messages.0.content.0: text content blocks must contain non-whitespace"),
    (body(user({"type": "text"})), "messages.0.content.0.text.text: Field required"),
    (body(user(text("x", extra=1))), "messages.0.content.0.text.extra: Extra inputs"),
    (body(user(call("a"))), "messages.0.content.0: Input tag 'tool_use'"),
    (body(HI, assistant({"type": "image", "source": PNG}), HI), "messages.1.content.0: Input tag 'image'"),
    (body(HI, assistant({"type": "from_tomorrow"}), HI), "Input tag 'from_tomorrow'"),
    (body(HI, assistant(text("x "))), "messages.1: final assistant content cannot end with trailing whitespace"),
    (body(HI, {"role": "assistant", "content": "x\n"}), "cannot end with trailing whitespace"),
    (body(HI, assistant({**thinking("a"), "thinking": "b"}, text("c")), HI), "Invalid `signature`"),
    (body(HI, assistant({"type": "thinking", "thinking": "b"}, text("c")), HI), "signature: Field required"),
    (body(HI, assistant(text("a"), thinking("b")), HI), "final block in an assistant message cannot be `thinking`"),
    # calls and results
    (body(*PAIR), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b"),
    (body(*PAIR, HI), "immediately after: a, b"),
    (body(*PAIR, user(result("a"))), "immediately after: b"),
    (body(*PAIR, user(text("x"), result("a"), result("b"))), "before any text"),
    (body(*PAIR, user(result("a"), text("x"), result("b"))), "immediately after: b"),
    (body(*PAIR, user(result("a")), assistant(text("x")), user(result("b"))), "immediately after: b"),
    (body(*PAIR, user(result("a"), result("b"), result("c"))), "unexpected `tool_use_id` found"),
    (body(*PAIR, user(result("a"), result("b"), result("b"))), "multiple `tool_result` blocks with id: b"),
    (body(user(result("a"))), "unexpected `tool_use_id`"),
    (body(HI, assistant(call("a"), call("a")), user(result("a"))), "ids must be unique: a"),
    (body(HI, *[assistant(call("a")), user(result("a"))] * 2), "ids must be unique: a"),
    (body(*PAIR, user(result("a"), result("b")), tools=[]), "must define tools"),
    (called(id="a b"), "tool_use.id: String should match"),
    (called(name="R ead"), "tool_use.name: String should match"),
    (called(input="{}"), "tool_use.input: Input should be a valid object"),
    (answered(content={"x": 1}), "tool_result.content: Input should be a valid array"),
    (answered(content=[text("")]), "tool_result.content.0: text content blocks"),
    (answered(content=[call("b")]), "tool_result.content.0: Input tag 'tool_use'"),
    (answered(content="", is_error=True), "content cannot be empty if `is_error`"),
    (answered(is_error="yes"), "is_error: Input should be a valid boolean"),
    (
        answered(is_error=True, content=[{"type": "image", "source": PNG}]),
        'must be type "text" if `is_error`',
    ),
    # pictures
    (body(user({"type": "image", "source": {**PNG, "media_type": "image/bmp"}})), "media_type: Input should be one of"),
    (body(user({"type": "image", "source": {**PNG, "data": "not base64!"}})), "invalid base64 data"),
    (body(user({"type": "image", "source": {**PNG, "media_type": "image/jpeg"}})), "not of the media type image/jpeg"),
    (body(user({"type": "image"})), "image.source: Field required"),
    (body(user({"type": "document", "source": PNG})), "document.source.base64.media_type"),
    # tools
    (body(HI, tools=[tool("a b")]), "tools.0.custom.name: String should match pattern"),
    (body(HI, tools=[tool("a" * 65)]), "tools.0.custom.name: String should match pattern"),
    (body(HI, tools=[tool(), tool()]), "Tool names must be unique: Read"),
    (body(HI, tools=[{"name": "x"}]), "tools.0.custom.input_schema: Field required"),
    (body(HI, tools=[{"name": "x", "input_schema": {}}]), "input_schema.type: Field required"),
    (body(HI, tools=[tool(type="array")]), "input_schema.type: Input should be 'object'"),
    (body(HI, tools=[tool(oneOf=[])]), "oneOf, allOf, or anyOf at the top level"),
    (body(HI, tools=[tool(allOf=[])]), "oneOf, allOf, or anyOf at the top level"),
    (body(HI, tools=[tool(anyOf=[])]), "oneOf, allOf, or anyOf at the top level"),
    (body(HI, tools=[tool(properties={"a b": {}})]), "Property keys should match"),
    (body(HI, tools=[tool(properties={"a": {"items": {"$ref": "#/$defs/Gone"}}})]), "unresolvable $ref '#/$defs/Gone'"),
    (body(HI, tools=[{**tool(), "colour": 1}]), "tools.0.custom.colour: Extra inputs"),
    # cache marks
    (body(*[user(text("x", **MARK))] * 5), "A maximum of 4 blocks with cache_control may be provided. Found 5"),
    (body(HI, assistant({**thinking("a"), **MARK}, text("c")), HI), "thinking.cache_control: Extra inputs"),
    (body(user(text("x", cache_control={"type": "for ever"}))), "not a cache mark"),
    (body(user(text("x", **MARK), text("x", **LONG_MARK))), "must not come after a ttl='5m'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "message"), BAD, ids=[f"{number}-{message[:40]}" for number, (_, message) in enumerate(BAD)]
)
def test_what_the_real_api_refuses_is_refused(bad: JsonObject, message: str) -> None:
    """With status 400 and a text that names the place."""
    with pytest.raises(Refused) as caught:
        check_request(bad)
    assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
    assert message in caught.value.message


@pytest.mark.parametrize("bad", [None, [], "x", 1])
def test_a_body_that_is_no_object_is_refused(bad: object) -> None:
    """As is one that is not JSON at all, which is read as None."""
    with pytest.raises(Refused, match="must be a JSON object"):
        check_request(bad)


def test_checking_changes_nothing() -> None:
    """The request is kept as it came."""
    before = copy.deepcopy(GOOD)
    check_request(GOOD)

    assert before == GOOD
