"""What a model back end is: one verb, `stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_agent.types import JsonObject, Usage


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request, in the Messages API's own JSON.

    `system` is a tuple of text blocks, `tools` the tool definitions in pool order. The back end adds cache marks.
    `model` asks another model of the same back end, by its name; back ends that have but one pass it over.
    `agent_id` is whose request it is; it is not sent.
    """

    messages: tuple[JsonObject, ...]
    system: tuple[JsonObject, ...] = ()
    tools: tuple[JsonObject, ...] = ()
    max_tokens: int = 32_000
    model: str | None = None
    agent_id: str = "main"


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Streamed text, for live output."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    """Streamed thinking, for live output."""

    text: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """A content block is complete while the answer still streams: what will be `Answer.content[index]`, if the answer
    comes to its end. `malformed` is the text of a tool_use whose JSON could not be parsed.
    """

    index: int
    block: JsonObject
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class Retrying:
    """The attempt failed in a passing way; everything streamed by it is void and a new one starts after `wait_s`."""

    attempt: int
    wait_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer; always the last event of a stream.

    `content` holds the blocks as they came and as they must go back. A tool_use whose JSON could not be parsed has
    input {} there; its text as it came is in `malformed`, by tool_use id.
    """

    content: tuple[JsonObject, ...]
    stop_reason: str
    usage: Usage
    model: str
    message_id: str | None = None
    malformed: dict[str, str] = field(default_factory=dict)
    stop_details: JsonObject | None = None


ModelEvent = TextPiece | ThinkingPiece | BlockDone | Retrying | Answer


class Model(Protocol):
    """A model back end."""

    @property
    def name(self) -> str:
        """What to show and record, for example "anthropic:claude-sonnet-5-5"."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Send one request and stream its answer; the last event is an `Answer`.

        Cancelling the iteration cancels the request.

        Raises:
            ModelOverloadedError: passing faults outlived the bounded retries.
            ModelRejectedError: refused for good (bad request, bad key, unknown model, prompt too long).
            ReplayMismatchError: a replayed model was asked for something else.
        """
        ...

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """How long a conversation may be, in tokens; None where that is not known, or not yet.

        Args:
            used_tokens: how long it is: a back end that has to ask for it need not before it gets long.
            model: another model, as in a request.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections. Safe to call twice."""
        ...
