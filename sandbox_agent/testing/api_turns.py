"""The turns of the API double: a model script, widened by the ways a network and a server go wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from sandbox_agent.models.base import Answer
from sandbox_agent.models.script_file import Script, Turn
from sandbox_agent.types import JsonObject

ERROR_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class DoubleTurn(Turn):
    """A turn as in a script, and what goes wrong with it.

    `status` answers with an HTTP error (or, with `body`, with any HTTP answer) instead. `fault` strikes after `after`
    SSE events: "reset" drops the connection (with `after: 0` before any header), "eof" ends the body cleanly, "error"
    sends an SSE error event of `error_kind`, "raw" puts `raw` in between and goes on, "stall" sends nothing for
    `stall_s` (None: until the client leaves) and goes on; of the event that was due, "reset" and "eof" let `part_bytes`
    through. `stop_details` go with the stop reason. A turn of nothing is
    an answer without content.
    """

    status: int | None = Field(default=None, ge=200, le=599)
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = None
    error_message: str | None = None
    error_kind: str = "overloaded_error"
    fault: Literal["reset", "eof", "error", "raw", "stall"] | None = None
    after: int = Field(default=0, ge=0)
    part_bytes: int = Field(default=0, ge=0)
    raw: str = ""
    stall_s: float | None = Field(default=None, ge=0)
    stop_details: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> DoubleTurn:
        if self.error is not None:
            raise ValueError("the API double takes status or fault, not error")
        return self


class DoubleScript(Script):
    """A script whose turns may have faults."""

    turns: tuple[DoubleTurn, ...] = Field(min_length=1)
    agents: Mapping[str, tuple[DoubleTurn, ...]] = Field(default_factory=dict)


def as_message(answer: Answer, message_id: str, usage: JsonObject) -> JsonObject:
    """The answer as the API's message object."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": list(answer.content),
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def as_events(
    message: JsonObject, malformed: dict[str, str], chunk_chars: int, stop_details: JsonObject | None = None
) -> Iterator[JsonObject]:
    """The SSE events that stream a message. `malformed` is tool input to send as it is, by call id."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block, malformed, chunk_chars)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    if stop_details is not None:
        delta["stop_details"] = stop_details
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: JsonObject, malformed: dict[str, str], chunk_chars: int) -> Iterator[JsonObject]:
    deltas: list[JsonObject] = []
    shell = dict(block)
    match block.get("type"):
        case "text":
            shell["text"] = ""
            deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block["text"], chunk_chars)]
        case "thinking":
            shell |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"], chunk_chars)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            shell["input"] = {}
            text = malformed.get(block["id"], json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_cut(text, chunk_chars)]]
    yield {"type": "content_block_start", "index": index, "content_block": shell}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def as_sse(event: JsonObject) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error_body(kind: str, message: str) -> JsonObject:
    """The body of an error answer, and the data of an SSE error event."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_double"}


def model_entry(name: str, window_tokens: int | None) -> JsonObject:
    """What the Models API says of one model; nothing of its window where that is not known."""
    entry: JsonObject = {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
    return entry if window_tokens is None else entry | {"max_input_tokens": window_tokens}


def model_list(names: Sequence[str], window_tokens: int | None) -> JsonObject:
    """All models on one page."""
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"data": [model_entry(name, window_tokens) for name in names], "has_more": False, **ends}
