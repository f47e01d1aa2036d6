"""Every way in which the model API goes wrong, through the real SDK: what runs, what the person sees, what is recorded.

One row a case. Each run goes through the strict double, so whatever is sent after a fault is what the API takes.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, use
from model_rig import KEY, REQUEST

from sandbox_agent.engine.session import Session
from sandbox_agent.events import (
    AssistantMessage,
    CallDiscarded,
    Event,
    ModelRetrying,
    ModelSwitched,
    ToolResultsMessage,
    ToolStarted,
)
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.models.anthropic import SILENCE_TIMEOUT_S, create
from sandbox_agent.models.retry import FIRST_WAIT_S, LONGEST_RETRY_AFTER_S, LONGEST_WAIT_S, MAX_ATTEMPTS, Retry
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import JsonObject

TRIES = 3
GOOD: JsonObject = {"text": "all is well"}
WRITE: JsonObject = {"tools": [use("Write", name="w")]}
READ: JsonObject = {"tools": [use("Read", name="r")]}
BOTH: JsonObject = {"text": "I look", "tools": [use("Read", name="r"), use("Write", name="w")]}
HALF = '{"name": "half'


def events_of(turn: JsonObject) -> int:
    """SSE events of an answer up to its last block's end: start and ping, then three a text, four a short call."""
    return 2 + (3 if "text" in turn else 0) + 4 * len(turn.get("tools", ()))


@dataclass(frozen=True)
class Case:
    """A row. `turns` are the double's; `ran` are the calls that ran, in order; `screen` is on the person's screen;
    `error` is in the run's error; `waits_s` is slept between the tries; `requests` is how many came."""

    turns: Sequence[JsonObject]
    status: str = "done"
    requests: int = 2
    ran: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    screen: str = ""
    error: str = ""
    results: tuple[str, ...] = ()
    waits_s: tuple[float, ...] | None = None
    silence_s: float = 30.0
    switched: bool = False
    fallback: str | None = None
    models: tuple[str, ...] | None = None


FIRST = (FIRST_WAIT_S,)
ALL = tuple(FIRST_WAIT_S * 2**number for number in range(TRIES - 1))


def passing(bad: JsonObject, screen: str, **more: Any) -> Case:
    """One such fault, and the next try is good."""
    return Case([bad, GOOD], screen=f"{screen}", waits_s=more.pop("waits_s", FIRST), **more)


def lasting(bad: JsonObject, error: str) -> Case:
    """The same fault until the tries are used up."""
    return Case([bad] * TRIES, "model_error", TRIES, error=error, screen=error, waits_s=ALL)


def refused(status: int, error: str, **more: Any) -> Case:
    """One request, one line."""
    return Case([{"status": status, **more}], "model_error", 1, error=error, screen=error, waits_s=())


CASES: dict[str, Case] = {
    # What a status says
    **{f"{status}, then well": passing({"status": status}, f"{status} ") for status in (408, 409, 429, 500, 503, 529)},
    **{f"{status} for good": lasting({"status": status}, f"after {TRIES} tries") for status in (429, 500, 503, 529)},
    "400": refused(400, "as invalid: odd", error_message="odd"),
    "400, too long": refused(400, "window", error_message="prompt is too long: 213062 tokens > 200000 maximum"),
    "401": refused(401, "ANTHROPIC_API_KEY"),
    "402": refused(402, "billing"),
    "403": refused(403, "permissions"),
    "404": refused(404, "does not know the model 'claude-test'"),
    "413": refused(413, "larger"),
    "418": refused(418, "status 418"),
    "redirect": refused(307, "redirects to", headers={"location": "http://elsewhere/"}),
    # What headers ask for
    "retry-after": passing({"status": 529, "headers": {"retry-after": "3"}}, "in 3.00 s", waits_s=(3.0,)),
    "retry-after-ms": passing({"status": 529, "headers": {"retry-after-ms": "250"}}, "0.25 s", waits_s=(0.25,)),
    "retry-after of seven weeks": Case(
        [{"status": 429, "headers": {"retry-after": "4294967"}}], "model_error", 1, error="4294967 s", waits_s=()
    ),
    "x-should-retry: false": Case(
        [{"status": 529, "headers": {"x-should-retry": "false"}}], "model_error", 1, error="not to try", waits_s=()
    ),
    # What breaks before a block is whole
    "reset before the headers": passing({**GOOD, "fault": "reset"}, "connection to http://127.0.0.1"),
    "reset in a text": passing({**GOOD, "fault": "reset", "after": 4}, "connection to http://127.0.0.1"),
    "end in a text": passing({**GOOD, "fault": "eof", "after": 4}, "before the answer was complete"),
    "end before the stream": passing({**GOOD, "fault": "eof"}, "not a message stream"),
    "error event": passing({**GOOD, "fault": "error", "after": 4}, "overloaded_error"),
    "error event, unknown kind": passing({**GOOD, "fault": "error", "after": 4, "error_kind": "of_tomorrow"}, "of_tom"),
    "error event that refuses": Case(
        [{**GOOD, "fault": "error", "error_kind": "invalid_request_error"}], "model_error", 1, error="as invalid"
    ),
    "JSON cut": passing(
        {**GOOD, "fault": "raw", "after": 3, "raw": "event: x\ndata: {cut\n\n"}, "the stream is damaged"
    ),
    "JSON that is no object": passing(
        {**GOOD, "fault": "raw", "after": 3, "raw": "event: x\ndata: [1]\n\n"}, "not an object"
    ),
    "not UTF-8": passing(
        {**GOOD, "fault": "raw", "after": 3, "raw": "event: x\ndata: \udcff\n\n"}, "the stream is damaged"
    ),
    "HTML with 200": passing({"body": "<html>sign in here</html>"}, "content-type text/html"),
    "JSON with 200": passing({"body": "{}", "headers": {"content-type": "application/json"}}, "application/json"),
    "empty body with 200": passing({"body": " "}, "not a message stream"),
    # What breaks later
    "reset after a text": passing({**BOTH, "fault": "reset", "after": 5}, "connection to"),
    "reset in a call": passing({**WRITE, "fault": "reset", "after": 4}, "connection to"),
    "end in a call": passing({**WRITE, "fault": "eof", "after": 4}, "before the answer was complete"),
    **{
        f"{fault} after a call that writes": Case(
            [{**WRITE, "fault": fault, "after": events_of(WRITE)}, WRITE, GOOD], requests=3, ran=("w",), waits_s=FIRST
        )
        for fault in ("reset", "eof", "error")
    },
    "stop reason, but no end": Case(
        [{**WRITE, "fault": "eof", "after": events_of(WRITE) + 1}, WRITE, GOOD], requests=3, ran=("w",), waits_s=FIRST
    ),
    "end after a call that reads": Case(
        [{**READ, "fault": "stall", "after": events_of(READ)}, READ, GOOD],
        requests=3,
        ran=("r", "r"),
        discarded=("r",),
        screen="discarded, the answer broke off",
        silence_s=0.3,
        waits_s=FIRST,
    ),
    # What is no fault
    "unknown events, comments, nonsense": Case(
        [{**GOOD, "fault": "raw", "after": 4, "raw": ': c\nnonsense\n\nevent: x\ndata: {"type": "x"}\n\n'}], requests=1
    ),
    "a silence": Case([{**GOOD, "fault": "stall", "after": 4, "stall_s": 0.1}], requests=1, waits_s=()),
    "a silence that does not end": passing({**GOOD, "fault": "stall", "after": 4}, "in time", silence_s=0.2),
    # What the answer is
    "max_tokens in a text": Case([{"text": "one", "stop_reason": "max_tokens"}, GOOD], screen="all is well"),
    "max_tokens in a call": Case(
        [{"tools": [{"name": "Write", "input": HALF}], "stop_reason": "max_tokens"}, WRITE, GOOD],
        requests=3,
        ran=("w",),
        results=("max_tokens", "Write w"),
    ),
    "max_tokens after calls": Case(
        [{**BOTH, "stop_reason": "max_tokens"}, GOOD], results=("max_tokens",), ran=("r?",), discarded=("r?",)
    ),
    "max_tokens again and again": Case(
        [{**WRITE, "stop_reason": "max_tokens"}] * 3,
        "failed",
        3,
        error="3 answers in a row",
        results=("max_tokens",) * 3,
    ),
    "end_turn with a call": Case([{**WRITE, "stop_reason": "end_turn"}, GOOD], results=("end_turn",)),
    "stop reason of tomorrow with a call": Case([{**WRITE, "stop_reason": "soon"}, GOOD], results=("soon",)),
    "stop reason of tomorrow": Case([{**GOOD, "stop_reason": "soon"}], requests=1),
    "stop_sequence": Case([{**GOOD, "stop_reason": "stop_sequence"}], requests=1),
    "pause_turn": Case([{"text": "a moment", "stop_reason": "pause_turn"}, GOOD], screen="all is well"),
    "pause_turn without end": Case(
        [{"text": "a moment", "stop_reason": "pause_turn"}] * 3, "failed", 3, error="ended with pause_turn"
    ),
    "refusal": Case(
        [{"text": "I", "stop_reason": "refusal", "stop_details": {"category": "cyber"}}],
        "failed",
        1,
        error="the model refused to go on (cyber)",
        screen="the model refused to go on (cyber)",
    ),
    "refusal in a call": Case(
        [{**WRITE, "stop_reason": "refusal"}], "failed", 1, error="refused to go on", results=("refusal",)
    ),
    "refusal without content": Case([{"stop_reason": "refusal"}], "failed", 1, error="the model refused to go on"),
    "window exceeded": Case(
        [{"text": "I", "stop_reason": "model_context_window_exceeded"}] * 3, "model_error", 1, error="window"
    ),
    "no content": Case([{"stop_reason": "end_turn"}, GOOD], screen="all is well"),
    "thinking and nothing else": Case([{"thinking": "hm", "stop_reason": "end_turn"}, GOOD], screen="all is well"),
    "thinking and blank text": Case(
        [{"content": [{"type": "redacted_thinking", "data": "eA"}, {"type": "text", "text": " "}]}, GOOD],
        screen="all is well",
    ),
    "cut in the middle of thinking": Case(
        [
            {
                "content": [{"type": "text", "text": "one"}, {"type": "redacted_thinking", "data": "eA"}],
                "stop_reason": "max_tokens",
            },
            GOOD,
        ],
        screen="all is well",
    ),
    "no content ever": Case([{"stop_reason": "end_turn"}] * 3, "failed", 3, error="no usable result"),
    "input that does not parse": Case(
        [{"tools": [{"name": "Write", "input": HALF}]}, GOOD], results=("JSON",), screen="all is well"
    ),
    "unknown block": Case(
        [{"content": [{"type": "of_tomorrow", "x": [1]}, {"type": "text", "text": "so"}]}], requests=1
    ),
    "two calls of one id": Case(
        [
            {
                "content": [
                    {"type": "tool_use", "id": "t", "name": "Read", "input": {"name": "r"}},
                    {"type": "tool_use", "id": "t", "name": "Write", "input": {"name": "w"}},
                ]
            }
        ],
        "model_error",
        1,
        error="the same id",
        ran=("r?",),
        discarded=("r?",),
    ),
    "a call of 200 kB": Case(
        [{"tools": [use("Write", name="x" * 200_000)]}, GOOD], ran=("x" * 200_000,), screen="all is well"
    ),
    "an answer of 2 MB": Case([{"text": "y" * 2_000_000, "chunk_chars": 10_000}], requests=1),
    # The fallback
    "overloaded, with a fallback": Case(
        [{"status": 529}] * TRIES + [GOOD],
        requests=TRIES + 1,
        fallback="claude-other",
        models=("claude-test",) * TRIES + ("claude-other",),
        screen="the rest of this run asks anthropic:claude-other",
    ),
    "not known, with a fallback": Case(
        [{"status": 404}, WRITE, GOOD],
        requests=3,
        fallback="claude-other",
        models=("claude-test", "claude-other", "claude-other"),
        ran=("w",),
        screen="does not know the model 'claude-test'",
    ),
    "refusal, with a fallback": Case(
        [{**BOTH, "stop_reason": "refusal"}, GOOD],
        fallback="claude-other",
        models=("claude-test", "claude-other"),
        ran=("r?",),
        discarded=("r?",),
        screen="anthropic:claude-test: the model refused to go on; the rest of this run asks anthropic:claude-other",
    ),
    "both refuse": Case(
        [{"text": "I", "stop_reason": "refusal"}] * 2,
        "failed",
        fallback="claude-other",
        models=("claude-test", "claude-other"),
        error="the model refused to go on",
    ),
    "both overloaded": Case(
        [{"status": 529}] * 2 * TRIES, "model_error", 2 * TRIES, fallback="claude-other", error=f"after {TRIES} tries"
    ),
    **{
        f"{status}, with a fallback": Case(
            [{"status": status, "error_message": "no"}], "model_error", 1, fallback="claude-other"
        )
        for status in (400, 401, 402, 403, 413)
    },
}


@dataclass
class Rig:
    """A session on the real SDK and the double; `ran` are the names of the calls that ran, `waits_s` was slept."""

    session: Session
    api: ApiDouble
    ran: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    screen: io.StringIO = field(default_factory=io.StringIO)

    async def play(self, task: str = "do it") -> list[Event]:
        view = ConsoleView(Printer(make_console(self.screen, {})))
        events = await play(self.session, task)
        for event in events:
            view.feed(event)
        return events


@asynccontextmanager
async def rigged(
    turns: Any, folder: Path, *, silence_s: float = 30.0, fallback: str | None = None
) -> AsyncIterator[Rig]:
    ran: list[str] = []
    waits_s: list[float] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        ran.append(value.name)

    async def sleep(seconds: float) -> None:
        waits_s.append(seconds)

    tools = [read_like("Read", body), make_tool("Write", body)]
    async with ApiDouble(turns) as api, make_session([GOOD], folder, tools=tools) as session:
        session.model = create(
            "claude-test",
            environ={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.base_url},
            retry=Retry(max_attempts=TRIES, sleep=sleep, random=lambda: 0.0),
            silence_timeout_s=silence_s,
        )
        session.fallback = fallback
        try:
            yield Rig(session, api, ran, waits_s)
        finally:
            await session.model.aclose()


@pytest.mark.parametrize("name", list(CASES))
async def test_what_becomes_of_it(tmp_path: Path, name: str) -> None:
    """The run's end, the requests, the calls that ran, the screen and the record; the key is in none of them."""
    case = CASES[name]
    async with rigged(case.turns, tmp_path, silence_s=case.silence_s, fallback=case.fallback) as rig:
        events = await rig.play()
        rig.session.tape.sync()

    end = finished(events)
    assert case.status == end.status, end.error
    assert case.error in (end.error or "")
    assert "\n" not in (end.error or "")
    assert case.requests == len(rig.api.requests)
    assert [received.refusal for received in rig.api.requests] == [[]] * case.requests
    # A read at the head of an answer may have begun, or not, when the answer came to its end at once.
    sure = [one for one in case.ran if not one.endswith("?")]
    may = [one.rstrip("?") for one in case.ran if one.endswith("?")]
    assert rig.ran in (sure, may + sure)
    told = [event.call_id for event in of(events, CallDiscarded)]
    assert len(told) == len(of(events, ToolStarted)) - len(sure) + len([one for one in case.discarded if one in sure])
    assert case.screen in rig.screen.getvalue()
    if case.waits_s is not None:
        assert list(case.waits_s) == rig.waits_s
    given = [str(block["content"]) for event in of(events, ToolResultsMessage) for block in event.content]
    assert all(any(wanted in text for text in given) for wanted in case.results)
    if case.models is not None:
        assert list(case.models) == [body["model"] for body in rig.api.message_bodies]
    assert len(of(events, ModelSwitched)) == (1 if case.fallback and (case.models or "both" in name) else 0)
    assert recorded(tmp_path) == [event for event in events if event.recorded]
    for text in (rig.screen.getvalue(), (tmp_path / "events.jsonl").read_text(), repr(events)):
        assert KEY not in text


def test_the_bounds_are_those_of_the_design() -> None:
    """Ten tries with waits up to half a minute; a minute is the longest that a server may ask for; 150 s of silence are
    waited out."""
    assert (MAX_ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S, LONGEST_RETRY_AFTER_S) == (10, 0.5, 32.0, 60.0)
    assert SILENCE_TIMEOUT_S > 150


async def test_waits_have_a_cap_and_jitter() -> None:
    """Half a second, doubled up to 32 s, and up to a quarter more."""
    retry = Retry(random=lambda: 1.0)
    waits_s = [min(FIRST_WAIT_S * 2.0**number, LONGEST_WAIT_S) * 1.25 for number in range(9)]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with ApiDouble([{"status": 529}] * MAX_ATTEMPTS) as api:
        environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.base_url}
        model = create("m", environ=environ, retry=Retry(sleep=sleep, random=retry.random))
        with pytest.raises(Exception, match="after 10 tries"):
            [event async for event in model.stream(REQUEST)]
        await model.aclose()

    assert waits_s == slept


async def test_the_fallback_is_for_one_run_and_keeps_the_record(tmp_path: Path) -> None:
    """The next task begins with the model itself. No thinking goes to the model that did not sign it, and none of it is
    lost: the model that did gets it back."""
    turns: list[JsonObject] = [
        {"thinking": "mine", "text": "first"},
        {"thinking": "void", "text": "no", "stop_reason": "refusal", "usage": {"input_tokens": 7, "output_tokens": 3}},
        {"thinking": "theirs", "tools": [use("Write", name="w")], "usage": {"input_tokens": 5, "output_tokens": 2}},
        {"text": "second"},
        {"text": "third"},
    ]
    async with rigged(turns, tmp_path, fallback="claude-other") as rig:
        await rig.play("one")
        events = await rig.play("two")
        await rig.play("three")
        messages = list(rig.session.messages)

    [switched] = of(events, ModelSwitched)
    assert (switched.before, switched.model) == ("anthropic:claude-test", "anthropic:claude-other")
    assert [block["type"] for block in switched.discarded] == ["thinking", "text"]
    assert switched.usage.input_tokens == 7
    assert finished(events).usage.input_tokens >= 12
    sent = [(body["model"], thinking_in(body["messages"])) for body in rig.api.message_bodies]
    assert sent == [
        ("claude-test", []),
        ("claude-test", ["mine"]),
        ("claude-other", []),
        ("claude-other", ["theirs"]),
        ("claude-test", ["mine"]),
    ]
    assert thinking_in(messages) == ["mine", "theirs"]
    assert [received.refusal for received in rig.api.requests] == [[]] * 5
    assert of(recorded(tmp_path), AssistantMessage)[1].content[0]["thinking"] == "theirs"


def thinking_in(messages: Sequence[JsonObject]) -> list[str]:
    return [block["thinking"] for message in messages for block in message["content"] if block["type"] == "thinking"]


async def test_thinking_of_an_earlier_session_with_another_model_is_no_end(tmp_path: Path) -> None:
    """Who signed it is not known any more: the API refuses it once, it is left out from then on, and the person is
    told."""
    async with rigged([{"thinking": "mine", "text": "first"}, WRITE, GOOD], tmp_path) as rig:
        await rig.play("one")
        rig.session.signers.clear()
        rig.session.other_model = "claude-other"
        events = await rig.play("two")

    assert finished(events).status == "done"
    [retrying] = of(events, ModelRetrying)
    assert "left out from here on" in retrying.reason
    assert "left out from here on" in rig.screen.getvalue()
    assert [len(received.refusal) for received in rig.api.requests] == [0, 1, 0, 0]
