"""A run whose conversation gets too long goes on in a shorter one; each request is checked as the API would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, recorded, use

from sandbox_agent.engine.compacting import compact
from sandbox_agent.engine.history import TRIMMED, fold
from sandbox_agent.engine.past import load_past
from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.events import ConversationCompacted, Event, Notice, ResultsTrimmed
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.testing.api_rules_messages import check_messages
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import JsonObject, Limits, ToolResult

TASK = {"type": "text", "text": "go on"}
WANTED = "This conversation has become long"


def long_tool(size_chars: int) -> Tool:
    """Answers at length."""

    async def body(value: Named, ctx: ToolContext) -> ToolResult:
        return ToolResult(value.name * size_chars)

    return make_tool("Long", body, read_only=True)


def texts(request: ModelRequest) -> str:
    """All that the model is told as text, results left out."""
    blocks = [block for message in request.messages for block in message["content"]]
    return "\n".join(str(block.get("text", "")) for block in blocks)


def is_about_summary(request: ModelRequest) -> bool:
    return WANTED in str(request.messages[-1]["content"][-1].get("text", ""))


class Plays:
    """Calls Long `turns` times, says "done", and gives `summary` where one is wanted."""

    def __init__(self, turns: int, summary: Callable[[ModelRequest, int], Any] | None = None) -> None:
        self.left = turns
        self.requests: list[ModelRequest] = []
        self.asked: list[ModelRequest] = []
        self._summary = summary or (
            lambda request, number: {"text": f"summary {number}", "usage": {"output_tokens": 7}}
        )

    def __call__(self, request: ModelRequest) -> Any:
        if is_about_summary(request):
            self.asked.append(request)
            return self._summary(request, len(self.asked))
        self.requests.append(request)
        self.left -= 1
        return {"tools": [use("Long", name="x")]} if self.left >= 0 else {"text": "done"}


def limits(context_tokens: int) -> Limits:
    return Limits(context_tokens=context_tokens)


async def test_old_results_go_first_and_no_summary_is_asked_for_while_that_is_enough(tmp_path: Path) -> None:
    """The last three turns keep theirs."""
    model = Plays(11)
    async with make_session(model, tmp_path, tools=[long_tool(1_500)], limits=limits(6_000)) as session:
        events = await play(session)
        assert session.messages == fold(recorded(tmp_path))

    assert finished(events).status == "done"
    first = of(events, ResultsTrimmed)[0]
    assert first.window_tokens == 6_000
    assert first.tokens_before >= 0.8 * 6_000 > 0.5 * 6_000 >= first.tokens_after
    assert model.asked == []
    contents = [
        block["content"] for one in model.requests[-1].messages for block in one["content"] if "content" in block
    ]
    assert contents[0] == TRIMMED
    assert contents[-3:] == ["x" * 1_500] * 3


async def test_a_summary_stands_for_what_was_and_the_run_goes_on(tmp_path: Path) -> None:
    """It is asked for behind the same conversation, with the same tools; the task stays word for word."""
    model = Plays(6)
    async with make_session(model, tmp_path, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        session.ctx.known_files["/w/a"] = "hash"
        events = await play(session, "the whole task")
        assert session.messages == fold(recorded(tmp_path))
        assert session.ctx.known_files == {}

    end = finished(events)
    compactions = of(events, ConversationCompacted)
    assert end.status == "done"
    assert end.turns == 7
    assert compactions
    assert {one.reason for one in compactions} == {"full"}
    assert all(one.tokens_after < one.tokens_before for one in compactions)
    assert end.usage.output_tokens == 7 * len(compactions)
    [asked, *_] = model.asked
    assert asked.tools == model.requests[0].tools
    assert asked.messages[: len(model.requests[1].messages) - 1] == model.requests[1].messages[:-1]
    after = texts(model.requests[-1])
    assert after.startswith("the whole task\n<conversation-summary>")
    assert f"summary {len(compactions)}" in after


async def test_a_session_that_was_compacted_is_gone_on_with_as_it_was(tmp_path: Path) -> None:
    """The record gives the same conversation; nothing of it has to be repaired."""
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()
    model = Plays(6)
    async with make_session(model, folder, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        await play(session)
        before = list(session.messages)
    past = load_past(tmp_path, folder.name, tmp_path)
    assert (past.messages, past.warning) == (before, None)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    for end in range(2, len(lines)):  # killed after any event
        (folder / "events.jsonl").write_bytes(b"".join(lines[:end]))
        messages = load_past(tmp_path, folder.name, tmp_path).messages
        check_messages([*messages, {"role": "user", "content": [TASK]}], has_tools=True, own_blocks=frozenset())
    [place, *_] = [place for place, line in enumerate(lines) if b'"conversation_compacted"' in line]
    for cut in (len(lines[place]) // 2, len(lines[place])):  # killed while it was written, and right after
        (folder / "events.jsonl").write_bytes(b"".join(lines[:place]) + lines[place][:cut])
        past = load_past(tmp_path, folder.name, tmp_path)
        assert ("<conversation-summary>" in str(past.messages)) is (cut == len(lines[place]))
        async with make_session(Plays(0), folder, tools=[long_tool(1)], limits=limits(5_000)) as session:
            session.journal.conversations["main"] = past.messages
            assert finished(await play(session, "go on")).status == "done"


async def test_a_model_that_takes_no_more_gets_a_shorter_conversation_once(tmp_path: Path) -> None:
    """Its refusal says how long it may be; the conversation itself is not sent once more for the summary."""
    model = Plays(4)

    def played(request: ModelRequest) -> Any:
        if not is_about_summary(request) and "summary" not in texts(request) and len(request.messages) > 6:
            raise ModelRejectedError("prompt is too long: 9000 tokens > 6000 maximum", kind="prompt_too_long")
        return model(request)

    async with make_session(played, tmp_path, tools=[long_tool(1_500)]) as session:
        events = await play(session)

    assert finished(events).status == "done"
    [compaction] = of(events, ConversationCompacted)
    assert (compaction.reason, compaction.window_tokens) == ("overflow", 6_000)
    assert "x" * 1_500 not in str(model.asked[0].messages)


async def test_a_window_that_ends_an_answer_is_no_end_of_the_run(tmp_path: Path) -> None:
    """But it is if the very next answer ends so, too."""
    for summaries, status in ((1, "done"), (9, "model_error")):
        model = Plays(3)
        exceeded = 0

        def played(request: ModelRequest, model: Plays = model, most: int = summaries) -> Any:
            nonlocal exceeded
            if not is_about_summary(request) and model.left <= 0 and exceeded < most:
                exceeded += 1
                return {"text": "half an ans", "stop_reason": "model_context_window_exceeded"}
            return model(request)

        folder = tmp_path / str(summaries)
        folder.mkdir()
        async with make_session(played, folder, tools=[long_tool(500)]) as session:
            events = await play(session)
        assert finished(events).status == status
        assert [one.reason for one in of(events, ConversationCompacted)] == ["overflow"]


@pytest.mark.parametrize("first", [{"tools": [use("Long", name="x")]}, {"text": "no", "stop_reason": "refusal"}, None])
async def test_a_summary_that_is_none_is_asked_for_in_smaller_forms(tmp_path: Path, first: JsonObject | None) -> None:
    """An error, a refusal, or a call in place of words; the last form is a log without tools."""

    def summary(request: ModelRequest, number: int) -> Any:
        if request.tools:
            if first is None:
                raise ModelRejectedError("prompt is too long", kind="prompt_too_long")
            return first
        return {"text": "from the log"}

    model = Plays(6, summary)
    async with make_session(model, tmp_path, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        events = await play(session)

    assert finished(events).status == "done"
    whole, trimmed, log = model.asked[:3]
    assert ("x" * 3_000 in str(whole.messages), "x" * 3_000 in str(trimmed.messages)) == (True, False)
    assert texts(log).count("<log>") == len(log.messages) == 1
    assert "from the log" in texts(model.requests[-1])


async def test_without_any_summary_the_run_ends_clearly_and_nothing_is_lost(tmp_path: Path) -> None:
    """The conversation is as it was before."""
    model = Plays(6, lambda request, number: {"text": "no", "stop_reason": "refusal"})
    async with make_session(model, tmp_path, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        events = await play(session)
        before = list(session.messages)
        with pytest.raises(ModelError, match="no summary of it in 3 tries"):
            await compact(session)
        assert session.messages == before

    end = finished(events)
    assert end.status == "model_error"
    assert "can be gone on with (--resume s)" in str(end.error)
    assert of(events, ConversationCompacted) == []


async def test_a_model_that_is_overloaded_is_not_asked_in_other_forms(tmp_path: Path) -> None:
    """It was asked many times already."""

    def summary(request: ModelRequest, number: int) -> Any:
        raise ModelOverloadedError("overloaded")

    model = Plays(6, summary)
    async with make_session(model, tmp_path, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        assert finished(await play(session)).error == "overloaded"
    assert len(model.asked) == 1


async def test_one_step_that_fills_the_window_loses_its_longest_results(tmp_path: Path) -> None:
    """There is nothing else to shorten; a task that alone is too long ends the run."""

    def played(request: ModelRequest) -> Any:
        results = [block for one in request.messages for block in one["content"] if "tool_use_id" in block]
        return {"text": f"{len(results)}"} if results else {"tools": [use("Long", name="x"), use("Long", name="")]}

    async with make_session(played, tmp_path, tools=[long_tool(30_000)], limits=limits(5_000)) as session:
        events = await play(session)
    assert (finished(events).status, finished(events).text) == ("done", "2")
    assert len(of(events, ResultsTrimmed)[0].tool_use_ids) == 1

    def too_long(request: ModelRequest) -> Any:
        raise ModelRejectedError("prompt is too long", kind="prompt_too_long")

    async with make_session(too_long, _fresh(tmp_path)) as session:
        end = finished(await play(session, "much " * 1_000))
    assert end.status == "model_error"
    assert "nothing of it can be left out" in str(end.error)


def _fresh(folder: Path) -> Path:
    path = folder / "fresh"
    path.mkdir()
    return path


async def test_a_person_may_ask_for_it(tmp_path: Path) -> None:
    """With what to keep; where there is nothing to shorten it says so."""
    model = Plays(2)
    async with make_session(model, tmp_path, tools=[long_tool(10)]) as session:
        assert await compact(session) is False
        await play(session)
        assert await compact(session, focus="the names") is True
        assert session.messages == fold(recorded(tmp_path))
        events: list[Event] = recorded(tmp_path)
        assert finished(await play(session, "more")).status == "done"
    assert "keep in particular: the names" in texts(model.asked[0])
    assert of(events, ConversationCompacted)[0].reason == "asked"
    assert any("is being summarised" in one.text for one in of(events, Notice))


async def test_with_a_fallback_a_summary_that_is_not_to_be_had_waits(tmp_path: Path) -> None:
    """The conversation still fits, and the next request may find the other model."""

    def summary(request: ModelRequest, number: int) -> Any:
        if request.model is None:
            raise ModelOverloadedError("overloaded")
        return {"text": "by the other"}

    model = Plays(6, summary)

    def played(request: ModelRequest) -> Any:
        if request.model is None and model.asked and not is_about_summary(request):
            raise ModelOverloadedError("overloaded")
        return model(request)

    async with make_session(played, tmp_path, tools=[long_tool(3_000)], limits=limits(5_000)) as session:
        session.fallback = "other"
        events = await play(session)

    assert finished(events).status == "done"
    assert any(one.text == "the conversation could not be summarised now: overloaded" for one in of(events, Notice))
    assert [request.model for request in model.asked[:2]] == [None, "other"]
    assert "by the other" in texts(model.requests[-1])


async def test_a_task_that_nearly_fills_the_window_has_no_summary_for_each_turn(tmp_path: Path) -> None:
    """A summary cannot make it shorter; it has to grow first."""
    model = Plays(9)
    async with make_session(model, tmp_path, tools=[long_tool(300)], limits=limits(5_000)) as session:
        assert finished(await play(session, "t" * 12_500)).status == "done"
    assert 1 <= len(model.asked) <= 2
