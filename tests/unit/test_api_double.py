"""The API double as a server: answers, streams, and goes wrong when told to. Its rules are in test_api_rules.py."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sandbox_agent.errors import ConfigError
from sandbox_agent.models.script_file import read_script
from sandbox_agent.models.script_player import sign_thinking
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.testing.api_turns import DoubleScript
from sandbox_agent.types import JsonObject

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
HI: JsonObject = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
TOOL: JsonObject = {"name": "Read", "description": "d", "input_schema": {"type": "object"}}


def body(*messages: JsonObject, **more: Any) -> JsonObject:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), "tools": [TOOL], **more}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def assistant(*blocks: JsonObject) -> JsonObject:
    return {"role": "assistant", "content": list(blocks)}


def connect(url: str) -> httpx2.AsyncClient:
    # No certificates to read for a plain endpoint.
    return httpx2.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, verify=False)


async def post(
    api: ApiDouble, sent: Any = None, path: str = "/v1/messages", headers: dict[str, str] | None = None
) -> httpx2.Response:
    async with connect(api.base_url) as client:
        if headers is not None:
            client.headers = httpx2.Headers(headers)
        return await client.post(path, json=sent or body(HI))


def events(response: httpx2.Response) -> list[JsonObject]:
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


async def test_a_refusal_is_an_answer_with_the_apis_error_body() -> None:
    """The client gets 400 with type and text; the request is kept with what it was refused for; no turn is used up."""
    async with ApiDouble([{"text": "x"}]) as api:
        response = await post(api, body())

    assert response.status_code == 400
    assert response.json()["error"] == {
        "type": "invalid_request_error",
        "message": "messages: at least one message is required",
    }
    assert api.requests[0].refusal == ["messages: at least one message is required"]
    assert api.turns_left == 1


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"anthropic-version": "1"}, 401, "x-api-key header is required"),
        ({"anthropic-version": "1", "authorization": "Basic x"}, 401, "x-api-key header is required"),
        ({"anthropic-version": "1", "x-api-key": "wrong"}, 401, "invalid x-api-key"),
        ({"anthropic-version": "1", "authorization": "Bearer wrong"}, 401, "invalid x-api-key"),
        ({"x-api-key": "right"}, 400, "anthropic-version"),
        ({"anthropic-version": "1", "x-api-key": "right", "content-type": "text/plain"}, 400, "content-type"),
        ({"anthropic-version": "1", "authorization": "Bearer right"}, 200, ""),
    ],
)
async def test_headers_are_checked(headers: dict[str, str], status: int, message: str) -> None:
    """A key by either header, the right one where one is named, a version, and JSON."""
    async with ApiDouble([{"text": "x"}], api_key="right") as api:
        response = await post(api, headers=headers)

    assert response.status_code == status
    assert message in response.json().get("error", {}).get("message", "")


async def test_an_answer_comes_plain_or_as_a_stream() -> None:
    """Without `stream` a message object, with it the events in the API's order and small deltas."""
    turn = {"thinking": "hm", "text": "abcd", "tools": [{"Read": {"a": 1}}], "chunk_chars": 3}
    async with ApiDouble([turn, turn]) as api:
        plain = (await post(api)).json()
        stream = events(await post(api, body(HI, stream=True)))

    assert [block["type"] for block in plain["content"]] == ["thinking", "text", "tool_use"]
    assert (plain["stop_reason"], plain["model"]) == ("tool_use", "m")
    assert plain["usage"]["input_tokens"] > 0
    assert [event["delta"] for event in stream if event["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": sign_thinking("hm")},
        {"type": "text_delta", "text": "abc"},
        {"type": "text_delta", "text": "d"},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"a'},
        {"type": "input_json_delta", "partial_json": '": '},
        {"type": "input_json_delta", "partial_json": "1}"},
    ]
    kinds = [event["type"] for event in stream]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_a_function_can_answer() -> None:
    """It gets the body and gives a turn."""
    async with ApiDouble(lambda sent: {"text": f"you are {sent['model']}"}) as api:
        assert (await post(api)).json()["content"] == [text("you are m")]


async def test_an_expectation_that_does_not_hold_is_a_refusal() -> None:
    """So a script fails as loudly through the API as in the scripted model; and so does one at its end."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1 failed"}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    sent = body(HI, assistant(call), {"role": "user", "content": [result]})
    async with ApiDouble([{"expect": "3 passed", "text": "x"}]) as api:
        first, second = await post(api, sent), await post(api, sent)

    assert (first.status_code, second.status_code) == (400, 400)
    assert "should contain '3 passed': '1 failed'" in first.json()["error"]["message"]
    assert "the script has 1 turn" in second.json()["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error"),
        (413, "request_too_large"), (429, "rate_limit_error"), (500, "api_error"), (503, "api_error"),
        (529, "overloaded_error"),
    ],
)  # fmt: skip
async def test_a_status_fault_is_an_error_answer(status: int, kind: str) -> None:
    """With the API's error type, a text and the headers of the turn."""
    turn = {"status": status, "error_message": "so", "headers": {"retry-after": "7"}}
    async with ApiDouble([turn]) as api:
        response = await post(api)

    assert (response.status_code, response.headers["retry-after"]) == (status, "7")
    assert response.json()["error"] == {"type": kind, "message": "so"}


async def test_html_can_come_with_status_200() -> None:
    """What a captive portal does."""
    async with ApiDouble([{"body": "<html>"}]) as api:
        response = await post(api)

    assert (response.status_code, response.text) == (200, "<html>")
    assert response.headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (
            {"fault": "eof"},
            lambda got: [event["type"] for event in got] == ["message_start", "ping", "content_block_start"],
        ),
        ({"fault": "error"}, lambda got: (got[3]["error"]["type"], len(got)) == ("overloaded_error", 4)),
        ({"fault": "raw", "raw": "data: 1\n"}, lambda got: (got[3], got[-1]["type"]) == (1, "message_stop")),
        ({"fault": "stall", "stall_s": 0.01}, lambda got: got[-1]["type"] == "message_stop"),
    ],
)
async def test_a_fault_strikes_after_so_many_events(fault: JsonObject, check: Callable[[list[Any]], bool]) -> None:
    """The events before it come, and what comes after depends on the fault."""
    async with ApiDouble([{"text": "x", "after": 3, **fault}]) as api:
        got = events(await post(api, body(HI, stream=True)))

    assert check(got), got


@pytest.mark.parametrize("after", [0, 3])
async def test_a_reset_drops_the_connection(after: int) -> None:
    """Before the headers or in the middle of the body."""
    async with ApiDouble([{"text": "x", "fault": "reset", "after": after}]) as api:
        with pytest.raises(httpx2.TransportError):
            await post(api, body(HI, stream=True))


async def test_a_client_that_leaves_is_noticed() -> None:
    """A test can wait for it."""
    async with ApiDouble([{"text": "x", "fault": "stall", "after": 3}]) as api:
        async with (
            connect(api.base_url) as client,
            client.stream("POST", "/v1/messages", json=body(HI, stream=True)) as response,
        ):
            await anext(response.aiter_bytes())
        await asyncio.wait_for(api.requests[0].left.wait(), 5)


async def test_blocks_of_tomorrow_are_taken_back_only_when_they_were_sent() -> None:
    """As the real API knows its own blocks."""
    content = [{"type": "from_tomorrow", "x": 1}]
    async with ApiDouble([{"content": content}, {"text": "x"}]) as api:
        before = await post(api, body(HI, assistant(*content), HI))
        await post(api)
        after = await post(api, body(HI, assistant(*content), HI))

    assert (before.status_code, after.status_code) == (400, 200)


async def test_tokens_are_counted_and_models_listed() -> None:
    """count_tokens needs no max_tokens and uses up no turn; unknown models and paths are 404."""
    counted = {"model": "m", "messages": [HI]}
    async with ApiDouble([{"text": "x"}], models=["m"]) as api:
        tokens = await post(api, counted, "/v1/messages/count_tokens")
        unknown = await post(api, {**body(HI), "model": "n"})
        nowhere = await post(api, path="/v1/nowhere")
        async with connect(api.base_url) as client:
            json_headers = {"content-type": "application/json"}
            listed = await client.get("/v1/models", headers=json_headers)
            one = await client.get("/v1/models/m", headers=json_headers)
            none = await client.get("/v1/models/n", headers=json_headers)

    assert tokens.json()["input_tokens"] > 0
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (404, "model: n")
    assert nowhere.status_code == 404
    assert [entry["id"] for entry in listed.json()["data"]] == ["m"]
    assert (one.json()["id"], none.status_code) == ("m", 404)
    assert api.turns_left == 1


async def test_a_body_over_32_mb_is_413() -> None:
    """Without reading it."""
    async with ApiDouble([{"text": "x"}]) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(api.base_url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n")
        head = await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert head == b"HTTP/1.1 413 Request Entity Too Large\r\n"


def test_a_wrong_fault_in_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    """The file format is that of a model script, and checked as one."""
    path = tmp_path / "script.yaml"
    path.write_text("- text: x\n- text: x\n  fault: explode\n")

    with pytest.raises(ConfigError, match=r"script\.yaml:3: turns\.1\.fault"):
        read_script(path, DoubleScript)


async def test_a_signature_holds_for_the_model_that_gave_it() -> None:
    """Thinking goes back to its own model; another one is refused, as the real API does."""
    async with ApiDouble([{"thinking": "hm", "text": "so"}, {"text": "own"}]) as api, connect(api.base_url) as client:
        said = (await client.post("/v1/messages", json=body(HI))).json()["content"]
        own = await client.post("/v1/messages", json=body(HI, assistant(*said), HI))
        other = await client.post("/v1/messages", json=body(HI, assistant(*said), HI, model="other"))

    assert own.json()["content"] == [text("own")]
    assert (other.status_code, "Invalid `signature`" in other.text) == (400, True)


async def test_it_runs_as_a_program(tmp_path: Path) -> None:
    """`python -m sandbox_agent.testing.api_double --script FILE` says where it listens, and serves."""
    path = tmp_path / "script.yaml"
    path.write_text("- text: from a file\n- {status: 529}\n")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox_agent.testing.api_double", "--script", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    line = (await program.stdout.readline()).decode()
    url = line.removeprefix("listening on ").strip()
    async with connect(url) as client:
        first = await client.post("/v1/messages", json=body(HI))
        second = await client.post("/v1/messages", json=body(HI))
    program.terminate()
    await program.wait()

    assert first.json()["content"] == [text("from a file")]
    assert second.status_code == 529
