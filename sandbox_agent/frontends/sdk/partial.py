"""Pieces of an answer as they stream, in the shape of the Messages API's own events.

The engine tells of text and thinking as it comes, and of a tool call when it is whole; the events are made of that, so
a call's input comes in one piece, and the message has no id of the API's before its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from sandbox_agent.events import (
    AssistantMessage,
    Event,
    ModelRetrying,
    ModelSwitched,
    RequestStarted,
    RunFinished,
    TextDelta,
    ThinkingDelta,
)
from sandbox_agent.types import JsonObject


class Partial:
    """Turns the first agent's events into stream events. `text` is what of the present answer has been said so far."""

    def __init__(self) -> None:
        self.text = ""
        self._model = ""
        self._begun = False
        self._kind: str | None = None
        self._index = -1
        self._streamed: list[str] = []

    def feed(self, event: Event, model: str) -> Iterator[JsonObject]:
        """The stream events that an event stands for; `model` is who is asked."""
        if event.agent_id != "main":
            return
        match event:
            case RequestStarted() | ModelRetrying() | ModelSwitched() | RunFinished():
                yield from self._end_block()
                self._forget(model)
            case TextDelta(text=text):
                self.text += text
                yield from self._piece("text", {"type": "text_delta", "text": text})
            case ThinkingDelta(text=text):
                yield from self._piece("thinking", {"type": "thinking_delta", "thinking": text})
            case AssistantMessage():
                yield from self._end(event)
                self._forget(model)
            case _:
                pass

    def _forget(self, model: str) -> None:
        self.text, self._model, self._begun, self._kind, self._index, self._streamed = "", model, False, None, -1, []

    def _piece(self, kind: str, delta: JsonObject) -> Iterator[JsonObject]:
        if self._kind != kind:
            yield from self._begin_block({"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})})
            self._kind = kind
            self._streamed.append(kind)
        yield {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _begin_block(self, block: JsonObject) -> Iterator[JsonObject]:
        yield from self._begin()
        yield from self._end_block()
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _begin(self) -> Iterator[JsonObject]:
        if not self._begun:
            self._begun = True
            usage = {"input_tokens": 0, "output_tokens": 0}
            head = {"id": "", "type": "message", "role": "assistant", "model": self._model, "content": []}
            message = {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}
            yield {"type": "message_start", "message": message}

    def _end_block(self) -> Iterator[JsonObject]:
        if self._kind is not None:
            self._kind = None
            yield {"type": "content_block_stop", "index": self._index}

    def _end(self, event: AssistantMessage) -> Iterator[JsonObject]:
        """Blocks that never streamed, then the end of the message."""
        waiting = list(self._streamed)
        for block in event.content:
            kind = str(block.get("type"))
            if waiting[:1] == [kind]:
                waiting.pop(0)
                continue
            shell, delta = _whole(block)
            yield from self._begin_block(shell)
            self._kind = kind
            if delta is not None:
                yield {"type": "content_block_delta", "index": self._index, "delta": delta}
        yield from self._begin()
        yield from self._end_block()
        ended = {"stop_reason": event.stop_reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": asdict(event.usage)}
        yield {"type": "message_stop"}


def _whole(block: JsonObject) -> tuple[JsonObject, JsonObject | None]:
    """A block that comes in one piece: how it begins, and what follows."""
    match block.get("type"):
        case "tool_use":
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block.get("input") or {})}
            return {**block, "input": {}}, delta
        case "text":
            return {"type": "text", "text": ""}, {"type": "text_delta", "text": block.get("text", "")}
        case _:
            return block, None
