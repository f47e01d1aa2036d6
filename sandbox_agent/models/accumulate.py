"""Puts the events of a Messages API stream together into one answer, without the SDK and in linear time.

Deltas are kept in lists and joined once: the SDK's own helper re-parses a growing string at each delta, which blocks
the event loop for 13 s on a tool input of 400 kB. Blocks of any kind, known or not, stay as they came and in order.
"""

from __future__ import annotations

import json
from typing import Any, Never

from sandbox_agent.models.base import Answer, BlockDone, ModelEvent, TextPiece, ThinkingPiece
from sandbox_agent.types import JsonObject, Usage, nests_too_deep

_PIECES = {"text_delta": "text", "thinking_delta": "thinking"}


class BrokenStreamError(Exception):
    """The stream is not what the API promises, so its answer is void. Never leaves this room."""


class Accumulator:
    """One answer in the making. Feed it every event, then take the answer."""

    def __init__(self) -> None:
        self._blocks: dict[int, JsonObject] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._json: dict[int, list[str]] = {}
        self._complete: set[int] = set()
        self._malformed: dict[str, str] = {}
        self._usage: JsonObject = {}
        self._model = ""
        self._message_id: str | None = None
        self._stop_reason: str | None = None
        self._stop_details: JsonObject | None = None
        self._started = False
        self._done = False

    def feed(self, event: JsonObject) -> ModelEvent | None:
        """Take one event; returns what it gives: a piece to show live, or a whole block. Events of unknown types are
        passed over.

        Raises:
            BrokenStreamError: the event does not fit what came before.
        """
        try:
            match event.get("type"):
                case "message_start":
                    self._start(event["message"])
                case "content_block_start":
                    self._begin(int(event["index"]), event["content_block"])
                case "content_block_delta":
                    return self._delta(int(event["index"]), event["delta"])
                case "content_block_stop":
                    return self._stop(int(event["index"]))
                case "message_delta":
                    self._message_delta(event)
                case "message_stop":
                    self._done = True
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise BrokenStreamError(f"a stream event that makes no sense ({event.get('type')})") from exc
        return None

    def answer(self) -> Answer:
        """The whole answer.

        Raises:
            BrokenStreamError: the stream ended before its end.
        """
        if not self._started:
            raise BrokenStreamError("the answer was not a message stream")
        if not self._done or self._stop_reason is None:
            raise BrokenStreamError("the stream ended before the answer was complete")
        for index in self._blocks:
            self._put_together(index)
        return Answer(
            content=tuple(self._blocks[index] for index in sorted(self._blocks)),
            stop_reason=self._stop_reason,
            usage=self._whole_usage(),
            model=self._model,
            message_id=self._message_id,
            malformed=self._malformed,
            stop_details=self._stop_details,
        )

    def _start(self, message: JsonObject) -> None:
        self._started = True
        self._usage.update(message.get("usage") or {})
        self._model = str(message.get("model") or "")
        self._message_id = message.get("id")

    def _begin(self, index: int, block: JsonObject) -> None:
        if index in self._blocks:
            raise ValueError("the block has begun already")
        self._blocks[index] = dict(block)

    def _stop(self, index: int) -> BlockDone:
        if index in self._complete:
            raise ValueError("the block is complete already")
        self._put_together(index)
        block = self._blocks[index]
        malformed = self._malformed.get(str(block.get("id"))) if block.get("type") == "tool_use" else None
        return BlockDone(index, block, malformed)

    def _put_together(self, index: int) -> None:
        """Join the pieces of a block; nothing comes to it after that."""
        if index in self._complete:
            return
        self._complete.add(index)
        block = self._blocks[index]
        for key, pieces in self._pieces.pop(index, {}).items():
            block[key] = str(block.get(key) or "") + "".join(pieces)
        if index in self._json:
            self._set_input(block, "".join(self._json.pop(index)))

    def _message_delta(self, event: JsonObject) -> None:
        delta = event.get("delta") or {}
        self._stop_reason = delta.get("stop_reason") or self._stop_reason
        self._stop_details = delta.get("stop_details") or self._stop_details
        # Counts are cumulative, so the last one stands; a null says nothing.
        self._usage.update({key: value for key, value in (event.get("usage") or {}).items() if value is not None})

    def _delta(self, index: int, delta: JsonObject) -> ModelEvent | None:
        block = self._blocks[index]
        if index in self._complete:
            raise ValueError("the block is complete already")
        kind = delta["type"]
        if kind == "input_json_delta":
            self._json.setdefault(index, []).append(_text(delta, "partial_json"))
        elif kind in _PIECES:
            key = _PIECES[kind]
            text = _text(delta, key)
            self._pieces.setdefault(index, {}).setdefault(key, []).append(text)
            return TextPiece(text) if key == "text" else ThinkingPiece(text)
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        else:
            self._unknown_delta(index, delta)
        return None

    def _unknown_delta(self, index: int, delta: JsonObject) -> None:
        """A kind of a later API: its text is appended under the same key, anything else replaces."""
        for key, value in delta.items():
            if key == "type":
                continue
            if isinstance(value, str):
                self._pieces.setdefault(index, {}).setdefault(key, []).append(value)
            else:
                self._blocks[index][key] = value

    def _set_input(self, block: JsonObject, text: str) -> None:
        if not text.strip():
            return
        parsed = _parse_object(text)
        if parsed is None:
            self._malformed[str(block.get("id"))] = text
        block["input"] = parsed if parsed is not None else {}

    def _whole_usage(self) -> Usage:
        written = self._usage.get("cache_creation")
        cached = _count(self._usage, "cache_creation_input_tokens")
        an_hour = _count(written, "ephemeral_1h_input_tokens") if isinstance(written, dict) else 0
        return Usage(
            input_tokens=_count(self._usage, "input_tokens"),
            output_tokens=_count(self._usage, "output_tokens"),
            cache_creation_input_tokens=cached,
            cache_read_input_tokens=_count(self._usage, "cache_read_input_tokens"),
            cache_creation_1h_input_tokens=min(an_hour, cached),
        )


def _count(usage: JsonObject, key: str) -> int:
    value = usage.get(key)
    return max(value, 0) if isinstance(value, int) else 0


def _text(delta: JsonObject, key: str) -> str:
    value = delta[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    return value


def _parse_object(text: str) -> JsonObject | None:
    """The JSON object in `text`, None if there is none. Neither NaN nor too many levels could be sent back."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not nests_too_deep(value) else None


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")
