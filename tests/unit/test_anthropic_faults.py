"""What goes wrong between the Anthropic model and the API: each trap of the SDK and of the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import anyio
import pytest
from model_rig import GOOD, KEY, REQUEST, ask, collect, connected, followed_by, no_sleep

from sandbox_agent.errors import ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.anthropic import AnthropicModel, create
from sandbox_agent.models.base import Answer, ModelEvent, ModelRequest, Retrying
from sandbox_agent.models.retry import Retry
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.types import JsonObject


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"text": "half", "fault": "error", "after": 4}, "overloaded_error: the double says so"),
        ({"text": "half", "fault": "error", "after": 4, "error_kind": "api_error"}, "api_error"),
        ({"text": "half", "fault": "reset", "after": 0}, "connection to http://127.0.0.1"),
        ({"text": "half", "fault": "reset", "after": 4}, "connection to http://127.0.0.1"),
        ({"text": "half", "fault": "eof", "after": 0}, "not a message stream"),
        ({"text": "half", "fault": "eof", "after": 4}, "before the answer was complete"),
        ({"text": "half", "fault": "eof", "after": 6}, "before the answer was complete"),
        ({"text": "half", "fault": "raw", "after": 3, "raw": "event: x\ndata: {cut\n\n"}, "the stream is damaged"),
        ({"text": "half", "fault": "raw", "after": 3, "raw": "event: x\ndata: [1]\n\n"}, "not an object"),
        ({"text": "half", "fault": "raw", "after": 3, "raw": "event: x\ndata: \udcff\n\n"}, "the stream is damaged"),
        ({"body": "<html>sign in here</html>"}, "content-type text/html"),
        ({"body": '{"ok": true}', "headers": {"content-type": "application/json"}}, "application/json"),
        ({"status": 429}, "429 rate_limit_error"),
        ({"status": 500}, "500 api_error"),
        ({"status": 502, "body": "<html>bad gateway</html>"}, "502"),
        ({"status": 503}, "503 api_error"),
        ({"status": 529, "headers": {"retry-after": "2"}}, "529 overloaded_error"),
    ],
)
async def test_a_passing_fault_is_retried_as_a_whole_turn(bad: JsonObject, reason: str) -> None:
    """Whatever of the answer came is void; the same request goes out again and its answer is the only one."""
    async with connected([bad, GOOD]) as (model, api):
        events = await collect(model)

    [retrying] = [event for event in events if isinstance(event, Retrying)]
    assert reason in retrying.reason
    assert isinstance(events[-1], Answer)
    assert events[-1].content == ({"type": "text", "text": "good"},)
    assert api.message_bodies[0] == api.message_bodies[1]


async def test_a_fault_that_stays_ends_the_request() -> None:
    """After the last try the error has the API's own kind, and an error event in a stream has no status 200."""
    async with connected([{"text": "half", "fault": "error", "after": 4}] * 3, max_attempts=3) as (model, api):
        with pytest.raises(ModelOverloadedError, match="after 3 tries") as caught:
            await collect(model)

    assert (caught.value.kind, caught.value.status) == ("overloaded_error", None)
    assert len(api.requests) == 3


async def test_an_error_event_that_refuses_is_not_retried() -> None:
    """In the stream, too, an invalid request is refused for good."""
    async with connected([{"text": "x", "fault": "error", "error_kind": "invalid_request_error"}]) as (model, api):
        with pytest.raises(ModelRejectedError, match="as invalid"):
            await collect(model)

    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("status", "message", "text", "kind"),
    [
        (400, "prompt is too long: 213062 tokens > 200000 maximum", "window", "prompt_too_long"),
        (400, "odd", "as invalid: odd", "invalid_request_error"),
        (401, "invalid x-api-key", "ANTHROPIC_API_KEY", "authentication_error"),
        (403, "odd", "permissions", "permission_error"),
        (404, "model: claude-test", "'claude-test'", "not_found_error"),
        (413, "odd", "larger", "request_too_large"),
    ],
)
async def test_a_refusal_ends_the_request_at_once(status: int, message: str, text: str, kind: str) -> None:
    """One request, one line, the API's own kind and status."""
    async with connected([{"status": status, "error_message": message}]) as (model, api):
        with pytest.raises(ModelRejectedError) as caught:
            await collect(model)

    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (kind, status) == (caught.value.kind, caught.value.status)
    assert len(api.requests) == 1


async def test_the_sdk_does_not_retry_by_itself() -> None:
    """One try of ours is one request on the wire."""
    async with connected([{"status": 529}, GOOD], max_attempts=1) as (model, api):
        with pytest.raises(ModelOverloadedError):
            await collect(model)

    assert len(api.requests) == 1


async def test_an_endless_retry_after_is_not_waited_for() -> None:
    """The SDK would sleep for 50 days."""
    async with connected([{"status": 429, "headers": {"retry-after": "4294967"}}]) as (model, _):
        with pytest.raises(ModelOverloadedError, match="4294967 s"):
            await collect(model)


@pytest.mark.parametrize("after", [0, 4])
async def test_silence_is_a_failed_attempt(after: int) -> None:
    """When nothing comes for the time allowed, before the first event or between two, the turn is sent again."""
    stall = {"text": "x", "fault": "stall", "after": after}
    async with connected([stall, GOOD], silence_timeout_s=0.2) as (model, _):
        events = await collect(model)

    assert ["in time" in event.reason for event in events if isinstance(event, Retrying)] == [True]
    assert isinstance(events[-1], Answer)


NOT_TAKEN_BACK = {"status": 400, "error_message": "messages.1.content.0: Invalid `signature` in `thinking` block"}


def thinking_in(body: JsonObject) -> list[JsonObject]:
    return [b for message in body["messages"] for b in message["content"] if b["type"].endswith("thinking")]


async def test_thinking_that_the_api_does_not_take_back_is_left_out_from_then_on() -> None:
    """At once and in words; the answers after that have their own, which is sent."""
    calling = [{"type": "redacted_thinking", "data": "eA"}, {"type": "text", "text": "so"}]
    turns = [{"content": calling}, NOT_TAKEN_BACK, {"thinking": "anew", "text": "second"}, GOOD]
    async with connected(turns) as (model, api):
        first = await ask(model)
        events = await collect(model, followed_by(first, {"type": "text", "text": "x"}))
        second = events[-1]
        assert isinstance(second, Answer)
        more = followed_by(first, {"type": "text", "text": "x"}).messages
        said = {"role": "assistant", "content": list(second.content)}
        await ask(model, ModelRequest((*more, said, more[-1])))

    [retrying] = [event for event in events if isinstance(event, Retrying)]
    assert (retrying.wait_s, "left out from here on" in retrying.reason) == (0.0, True)
    assert [len(thinking_in(body)) for body in api.message_bodies] == [0, 1, 0, 1]
    assert thinking_in(api.message_bodies[-1])[0]["thinking"] == "anew"


async def test_thinking_that_is_refused_without_any_is_a_refusal() -> None:
    """There is nothing left to leave out, so it is not tried again."""
    async with connected([NOT_TAKEN_BACK]) as (model, api):
        with pytest.raises(ModelRejectedError, match="Invalid `signature`"):
            await collect(model)

    assert len(api.requests) == 1


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Also where it is one line, or an error page; and it is not asked for again."""
    monkeypatch.setattr("sandbox_agent.models.anthropic.MOST_BYTES", 100_000)
    async with connected([{"status": status, "body": "data: " + "x" * 200_000}, GOOD]) as (model, api):
        with pytest.raises(ModelRejectedError, match="no answer of the model API is"):
            await collect(model)

    assert len(api.requests) == 1


async def test_events_of_a_later_api_and_comments_are_passed_over() -> None:
    """Unknown events, pings, comments and lines without a colon change nothing."""
    raw = (
        'event: tomorrow\ndata: {"type": "tomorrow"}\n\n: comment\nnonsense\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    )
    async with connected([{"text": "good", "fault": "raw", "after": 4, "raw": raw}]) as (model, _):
        assert (await ask(model)).content == ({"type": "text", "text": "good"},)


async def test_a_dead_endpoint_is_named_without_its_password() -> None:
    """The reason says where nobody answers, and not the user and password in the URL."""
    async with ApiDouble([GOOD]) as api:
        dead_url = api.base_url.replace("://", "://user:hunter2@")
    environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": dead_url}
    model = create("claude-test", environ=environ, retry=Retry(max_attempts=2, sleep=no_sleep))
    with pytest.raises(ModelOverloadedError, match=r"connection to http://127\.0\.0\.1:\d+") as caught:
        await collect(model)
    await model.aclose()

    assert "hunter2" not in str(caught.value)


async def test_a_redirect_is_refused_and_not_followed() -> None:
    """The key never goes to a host that nobody named."""
    async with ApiDouble([GOOD]) as elsewhere:
        turn = {"status": 307, "headers": {"location": f"{elsewhere.base_url}/v1/messages"}}
        async with connected([turn]) as (model, _):
            with pytest.raises(ModelRejectedError, match="redirects to"):
                await collect(model)

    assert elsewhere.requests == []


async def test_cancelling_the_iteration_cancels_the_request() -> None:
    """The connection is closed at once, and the server sees it."""
    started = anyio.Event()

    async def consume(model: AnthropicModel) -> None:
        async for _ in model.stream(REQUEST):
            started.set()

    async with connected([{"text": "x", "fault": "stall", "after": 4}]) as (model, api):
        async with anyio.create_task_group() as group:
            group.start_soon(consume, model)
            await started.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await api.requests[0].left.wait()


async def test_leaving_the_iteration_closes_the_request() -> None:
    """A consumer that has seen enough ends the request by closing the iterator."""
    async with connected([{"text": "x", "fault": "stall", "after": 4}]) as (model, api):
        async with aclosing(cast(AsyncGenerator[ModelEvent, None], model.stream(REQUEST))) as events:
            await anext(events)
        with anyio.fail_after(5):
            await api.requests[0].left.wait()


async def test_requests_of_one_model_run_at_the_same_time() -> None:
    """Two sub-agents on one model do not wait for each other: both requests are in before either has its answer."""
    model_done: list[str] = []
    async with connected([{"text": "x", "fault": "stall", "after": 4}] * 2) as (model, api):

        async def one(started: anyio.Event) -> None:
            async for _ in model.stream(REQUEST):
                started.set()
            model_done.append("answer")

        async with anyio.create_task_group() as group:
            both = [anyio.Event(), anyio.Event()]
            for started in both:
                group.start_soon(one, started)
            with anyio.fail_after(5):
                for started in both:
                    await started.wait()
            group.cancel_scope.cancel()

    assert len(api.requests) == 2
    assert model_done == []
