"""What people and programs see of limits, costs and shortened conversations."""

from __future__ import annotations

import pytest
from frontend_events import STARTED, ended

from sandbox_agent.events import ConversationCompacted, Event, LimitReached, ResultsTrimmed
from sandbox_agent.frontends import asides, words
from sandbox_agent.frontends.stream_json import StreamJson, result
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.types import Usage

LENGTHS = {"tokens_before": 165_000, "tokens_after": 9_000, "window_tokens": 200_000}
TRIMMED = ResultsTrimmed(tool_use_ids=("a", "b"), **LENGTHS)
COMPACTED = ConversationCompacted(messages=(), reason="full", model="m", usage=Usage(1, 2), **LENGTHS)


@pytest.mark.parametrize(
    ("cost_usd", "said"),
    [
        (None, "cost unknown"),
        (0.00001, "under 0.0001 USD"),
        (0.0123, "0.0123 USD"),
        (1.5, "1.50 USD"),
        (0.0, "no cost"),
    ],
)
def test_a_cost_is_said_and_an_unknown_one_is_never_a_number(cost_usd: float | None, said: str) -> None:
    """Also one that would be rounded to nothing."""
    assert words.cost(cost_usd, Usage(10, 1)) == said


def test_where_nothing_was_used_no_cost_is_told() -> None:
    """A scripted model says nothing of tokens."""
    assert words.cost(None, Usage()) == ""


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (LimitReached(limit="tokens", value=1_500_000), "! the limit tokens = 1,500,000 was reached"),
        (LimitReached(limit="cost_usd", value=0.5), "! the limit cost_usd = 0.50 was reached"),
        (LimitReached(limit="wall_s", value=0.05), "! the limit wall_s = 0.05 was reached"),
        (
            TRIMMED,
            "~ 2 old results taken out to make room: about 165,000 tokens became 9,000, of 200,000",
        ),
        (COMPACTED, "~ the conversation was summarised: about 165,000 tokens became 9,000, of 200,000"),
    ],
)
def test_each_has_a_line_for_the_person(event: Event, line: str) -> None:
    """With its figures written out."""
    assert [text.plain for text in asides.lines(event, verbose=False)] == [line]


def test_a_limit_and_the_cost_are_in_the_result() -> None:
    """By name and value, and by model."""
    summary = RunSummary()
    used = Usage(100, 20)
    for event in (
        STARTED,
        LimitReached(limit="cost_usd", value=0.25),
        ended("limit", cost_usd=0.26, model_usage={"claude": used}),
    ):
        summary.feed(event)
    found = result(summary)
    assert (found["exit_code"], found["subtype"], found["total_cost_usd"]) == (4, "error_max_budget_usd", 0.26)
    assert found["limit"] == {"name": "cost_usd", "value": 0.25}
    assert found["model_usage"]["claude"]["input_tokens"] == 100


def test_a_shortened_conversation_is_a_line_for_programs() -> None:
    """One of the field's name, with the figures."""
    stream = StreamJson(new_id=lambda: "id")
    [trimmed] = stream.lines(TRIMMED)
    [compacted] = stream.lines(COMPACTED)
    assert (trimmed["subtype"], trimmed["tool_use_ids"], trimmed["tokens_after"]) == (
        "results_trimmed",
        ["a", "b"],
        9_000,
    )
    assert compacted["subtype"] == "compact_boundary"
    assert compacted["compact_metadata"] == {"trigger": "auto", "pre_tokens": 165_000}
