"""What the loop does with every kind of answer of a model: cut, empty, ended by name, or with calls that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, results, use

from sandbox_agent.events import ToolStarted
from sandbox_agent.tools.base import ToolContext

DONE = {"text": "done"}


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn", "pause_turn", "something_new"])
async def test_calls_run_only_when_the_answer_ended_for_them(tmp_path: Path, stop_reason: str) -> None:
    """A cut answer's call is answered with an explanation and never run; the next one works."""
    ran: list[str] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        ran.append(value.name)

    turns = [
        {"tools": [use("Write", name="cut")], "stop_reason": stop_reason},
        {"tools": [use("Write", name="whole")]},
        DONE,
    ]
    async with make_session(turns, tmp_path, tools=[make_tool("Write", body)]) as session:
        events = await play(session)

    assert ran == ["whole"]
    assert stop_reason in results(events)[0][0]
    assert finished(events).status == "done"


async def test_cut_answers_do_not_go_on_for_ever(tmp_path: Path) -> None:
    """Three in a row end the run as failed, with a text that names the cause."""
    cut = {"tools": [use("Write")], "stop_reason": "max_tokens"}
    async with make_session([cut] * 9, tmp_path, tools=[make_tool("Write")]) as session:
        end = finished(await play(session))

    assert (end.status, end.turns) == ("failed", 3)
    assert "max_tokens" in (end.error or "")


async def test_cut_text_is_continued(tmp_path: Path) -> None:
    """The model is asked to go on."""
    async with make_session(
        [{"text": "part one", "stop_reason": "max_tokens"}, {"text": "part two"}], tmp_path
    ) as session:
        end = finished(await play(session))

    assert (end.status, end.text, end.turns) == ("done", "part two", 2)


async def test_an_empty_answer_is_asked_about(tmp_path: Path) -> None:
    """Nothing empty enters the conversation."""
    thinking_only = {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}], "stop_reason": "end_turn"}
    async with make_session([thinking_only, {"text": "here"}], tmp_path) as session:
        end = finished(await play(session))
    assert (end.status, end.text) == ("done", "here")


@pytest.mark.parametrize(
    ("stop_reason", "status", "said"),
    [("refusal", "failed", "refused"), ("model_context_window_exceeded", "model_error", "context window")],
)
async def test_a_named_end_is_named(tmp_path: Path, stop_reason: str, status: str, said: str) -> None:
    """Refusal and overflow are not successes."""
    async with make_session([{"text": "I", "stop_reason": stop_reason}], tmp_path) as session:
        end = finished(await play(session))
    assert status == end.status
    assert said in (end.error or "")


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


CALL = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"name": "x"}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([CALL, {**CALL, "input": {"name": "other"}}], "the same id"),
        ([{key: value for key, value in CALL.items() if key != "id"}], "id"),
        ([{**CALL, "id": ""}], "id"),
        ([{**CALL, "id": "a\x1b[2J\nb"}], "id"),
        ([{**CALL, "id": "a\ud800"}], "id"),
        ([{**CALL, "name": 7}], "names no tool"),
        ([{key: value for key, value in CALL.items() if key != "name"}], "names no tool"),
        ([{**CALL, "name": "no such\n\x1b[2J"}], "the name of its tool is not a short plain word"),
        ([{**CALL, "input": ["x"]}], "not an object"),
        ([{"text": "no type"}], "without a type"),
        ([{**CALL, "input": {"name": nested(150)}}], "levels deep"),
        ([{"type": "odd", "value": nested(150)}], "levels deep"),
    ],
)
async def test_an_answer_whose_calls_cannot_be_told_apart_is_refused(
    tmp_path: Path, content: list[dict[str, Any]], why: str
) -> None:
    """Before anything of it runs or is recorded; in plain characters, for it goes to terminals."""
    async with make_session([{"content": content}, DONE], tmp_path, tools=[make_tool("Bash")]) as session:
        events = await play(session)

    end = finished(events)
    assert end.status == "model_error"
    assert why in (end.error or "")
    assert (end.error or "").isascii()
    assert (end.error or "").isprintable()
    assert of(events, ToolStarted) == []
    assert [message["role"] for message in session.messages] == ["user"]


async def test_a_call_with_the_id_of_an_earlier_one_is_refused(tmp_path: Path) -> None:
    """The record and the API know calls by their ids alone, over the whole conversation."""
    turns = [{"content": [CALL]}, {"content": [CALL]}, DONE]
    async with make_session(turns, tmp_path, tools=[make_tool("Bash")]) as session:
        events = await play(session)

    assert finished(events).status == "model_error"
    assert len(of(events, ToolStarted)) == 1
