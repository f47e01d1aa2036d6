"""What the Anthropic model makes of a stream: through the real SDK, against the strict double."""

from __future__ import annotations

import pytest
from model_rig import GOOD, KEY, ask, collect, connected, followed_by, result

from sandbox_agent import registry
from sandbox_agent.models.accumulate import Accumulator, BrokenStreamError
from sandbox_agent.models.base import Answer, BlockDone, Retrying, TextPiece, ThinkingPiece
from sandbox_agent.types import JsonObject, Usage


async def test_an_answer_streams_and_comes_whole() -> None:
    """Pieces of text and thinking come live, then the whole answer with usage, stop reason and id."""
    turn: JsonObject = {
        "thinking": "hm",
        "text": "reading two",
        "tools": [{"Read": {"path": "a"}}, {"Read": {"path": "ä"}}],
    }
    usage = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7}
    usage |= {"cache_creation_input_tokens": 9, "cache_creation_1h_input_tokens": 4}
    turn |= {"chunk_chars": 8, "usage": usage}
    async with connected([turn]) as (model, _):
        *pieces, answer = await collect(model)

    assert isinstance(answer, Answer)
    whole = [BlockDone(index, block) for index, block in enumerate(answer.content)]
    assert [ThinkingPiece("hm"), whole[0], TextPiece("reading "), TextPiece("two"), *whole[1:]] == pieces
    assert [block["type"] for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in answer.content[2:]] == [{"path": "a"}, {"path": "ä"}]
    assert answer.stop_reason == "tool_use"
    assert Usage(**usage) == answer.usage
    assert (answer.model, answer.message_id, answer.malformed) == ("claude-test", "msg_double_1", {})


async def test_the_registry_finds_the_model_by_name() -> None:
    """`anthropic:NAME` is the module `models.anthropic` and its `create`."""
    model = registry.load("models", "anthropic").create("claude-x", environ={"ANTHROPIC_API_KEY": KEY})

    assert model.name == "anthropic:claude-x"
    await model.aclose()
    await model.aclose()


async def test_thinking_goes_back_unchanged_and_in_order() -> None:
    """Thinking with its signature, redacted thinking, and blocks of a later API survive the round trip."""
    content = [
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "block_of_tomorrow", "payload": {"deep": [1, None, "x"]}, "other": 1.5},
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"z": 1, "a": [2]}},
    ]
    async with connected([{"content": content}, {"thinking": "first", "tools": [{"Read": {}}]}, GOOD]) as (model, api):
        first = await ask(model)
        second = await ask(model, followed_by(first, result(first.content[-1])))
        await ask(model, followed_by(second, result(second.content[-1])))

    assert tuple(content) == first.content
    assert content == api.message_bodies[1]["messages"][1]["content"]
    assert list(second.content) == api.message_bodies[2]["messages"][1]["content"]


@pytest.mark.parametrize("reason", ["pause_turn", "refusal", "model_context_window_exceeded", "reason_of_tomorrow"])
async def test_any_stop_reason_passes_through(reason: str) -> None:
    """A stop reason this version does not know is the engine's to judge."""
    async with connected([{"text": "x", "stop_reason": reason}]) as (model, _):
        assert reason == (await ask(model)).stop_reason


DEEP = '{"a": ' * 600 + "1" + "}" * 600


@pytest.mark.parametrize("text", ['{"path": "a", "con', "[1]", "nonsense", '{"n": NaN}', "[" * 100_000, DEEP])
async def test_tool_input_that_is_no_json_object_is_set_aside(text: str) -> None:
    """The call has input {}, its text is in `malformed`, and nothing is raised."""
    turn = {"tools": [{"name": "Write", "input": text}, {"Read": {"path": "a"}}], "chunk_chars": 4000}
    async with connected([turn]) as (model, _):
        answer = await ask(model)

    assert [block["input"] for block in answer.content] == [{}, {"path": "a"}]
    assert {answer.content[0]["id"]: text} == answer.malformed


async def test_a_call_cut_by_max_tokens_is_told_apart() -> None:
    """The stop reason is max_tokens and the half input is set aside, so that nobody runs it."""
    turn = {"tools": [{"name": "Write", "input": '{"file_path": "/a", "content": "half'}], "stop_reason": "max_tokens"}
    async with connected([turn]) as (model, _):
        answer = await ask(model)

    assert answer.stop_reason == "max_tokens"
    assert answer.content[0]["input"] == {}
    assert [answer.content[0]["id"]] == list(answer.malformed)


async def test_a_big_tool_input_comes_whole() -> None:
    """200 kB in 8,000 pieces is one input."""
    async with connected([{"tools": [{"Write": {"content": "x" * 200_000}}]}]) as (model, _):
        answer = await ask(model)

    assert answer.content[0]["input"] == {"content": "x" * 200_000}


class CountedText(str):
    """Text that counts how often it is added to another."""

    added = 0

    def __radd__(self, other: str) -> str:
        type(self).added += 1
        return other + str(self)


@pytest.mark.parametrize(
    ("block", "delta", "key"),
    [
        ({"type": "text", "text": ""}, "text_delta", "text"),
        ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
        ({"type": "tool_use", "id": "t", "name": "n", "input": {}}, "input_json_delta", "partial_json"),
    ],
)
def test_pieces_are_joined_once_and_not_added_one_by_one(block: JsonObject, delta: str, key: str) -> None:
    """Adding each piece to what came before would be quadratic in the size of the answer."""
    CountedText.added = 0
    accumulator = Accumulator()
    accumulator.feed({"type": "message_start", "message": {}})
    accumulator.feed({"type": "content_block_start", "index": 0, "content_block": block})
    for _ in range(1000):
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": delta, key: CountedText("12")}}
        accumulator.feed(event)
    accumulator.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    accumulator.feed({"type": "message_stop"})
    answer = accumulator.answer()

    assert CountedText.added == 0
    assert len(answer.malformed["t"] if delta == "input_json_delta" else answer.content[0][key]) == 2000


def test_deltas_of_a_later_api_are_kept() -> None:
    """Text of an unknown delta is appended under its key, other values replace, citations are collected."""
    accumulator = Accumulator()
    accumulator.feed({"type": "message_start", "message": {}})
    accumulator.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "new", "content": "a"}})
    for delta in (
        {"type": "new_delta", "content": "b", "level": 1},
        {"type": "new_delta", "content": "c", "level": 2},
        {"type": "citations_delta", "citation": {"cited_text": "q"}},
    ):
        accumulator.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    accumulator.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_details": {"category": "x"}}})
    accumulator.feed({"type": "message_stop"})
    answer = accumulator.answer()

    assert answer.content == ({"type": "new", "content": "abc", "level": 2, "citations": [{"cited_text": "q"}]},)
    assert answer.stop_details == {"category": "x"}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_start", "index": None, "content_block": {}},
        {"type": "message_start"},
        {"type": "message_start", "message": [1]},
        {"type": "content_block_stop", "index": 0},
    ],
)
def test_an_event_that_makes_no_sense_breaks_the_stream(event: JsonObject) -> None:
    """What does not fit what came before is a broken stream, never a KeyError."""
    with pytest.raises(BrokenStreamError):
        Accumulator().feed(event)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "other"}},
        {"type": "content_block_stop", "index": 0},
    ],
)
def test_a_block_that_is_complete_stays_as_it_is(event: JsonObject) -> None:
    """Somebody may have gone by it already; a stream that comes back to it is broken."""
    accumulator = Accumulator()
    accumulator.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}})
    assert accumulator.feed({"type": "content_block_stop", "index": 0}) == BlockDone(0, {"type": "text", "text": "a"})
    with pytest.raises(BrokenStreamError):
        accumulator.feed(event)


async def test_a_block_is_told_as_soon_as_it_is_complete() -> None:
    """Also a call whose input does not parse, with the text of it; the rest of the answer may still be under way."""
    turn = {"tools": [{"name": "Read", "input": "{cut"}, {"Read": {"path": "a"}}], "fault": "eof", "after": 8}
    async with connected([turn, GOOD], max_attempts=2) as (model, _):
        events = await collect(model)

    first = events[: next(place for place, event in enumerate(events) if isinstance(event, Retrying))]
    [done] = [event for event in first if isinstance(event, BlockDone)]
    assert (done.index, done.block["input"], done.malformed) == (0, {}, "{cut")
