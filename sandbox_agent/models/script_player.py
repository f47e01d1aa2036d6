"""Plays a script: which turn comes next, whether it fits what happened, and the answer it stands for.

Shared by the scripted model and by the API double, so that one file of turns serves both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sandbox_agent.errors import ModelError
from sandbox_agent.models.base import Answer, BlockDone, ModelEvent, ModelRequest, TextPiece, ThinkingPiece
from sandbox_agent.models.script_file import Expect, ToolCall, Turn
from sandbox_agent.types import SUMMARY_MARK, JsonObject, Usage

TurnT = TypeVar("TurnT", bound=Turn)

_SHOWN_CHARS = 600
"""How much of a tool result an error about it quotes."""


class Taken(NamedTuple, Generic[TurnT]):
    """The turn that was up, and how to make its answer."""

    turn: TurnT
    id_stem: str
    names: dict[str, str]


class ScriptPlayer(Generic[TurnT]):
    """The place in a script. `source` is what errors call it."""

    def __init__(self, turns: Sequence[TurnT], agents: Mapping[str, tuple[TurnT, ...]], source: str) -> None:
        self._turns = turns
        self._agents = agents
        self._source = source
        self._played: dict[str, int] = {}
        self._names: dict[str, str] = {}

    @property
    def turns_left(self) -> int:
        """How many turns of the main list were not played yet."""
        return len(self._turns) - self._played.get("", 0)

    def take(self, request: ModelRequest) -> Taken[TurnT]:
        """The next turn for this request.

        Raises:
            ModelError: an `expect` or `capture` does not hold, or no turn is left.
        """
        task = first_user_text(request)
        agent = next((key for key in self._agents if key in task), "")
        turns = self._agents[agent] if agent else self._turns
        place = self._played.get(agent, 0)
        label = f"{self._source}: turn {place + 1}" + (f" of agent {agent!r}" if agent else "")
        if place >= len(turns):
            raise ModelError(
                f"{label} was asked for, but the script has {len(turns)} turn{'s' if len(turns) != 1 else ''}; "
                "add a turn, or end the last one without tools",
                kind="script_exhausted",
            )
        self._played[agent] = place + 1
        turn = turns[place]
        self._check(turn, request, label)
        number = list(self._agents).index(agent) + 1 if agent else 0
        # The count of messages keeps the ids apart when a resumed run starts the script again.
        stem = f"toolu_script_{number}_{place + 1}_{len(request.messages)}"
        return Taken(turn, stem, {"task": task, **self._names})

    def _check(self, turn: Turn, request: ModelRequest, label: str) -> None:
        results = result_blocks(request.messages[-1]) if request.messages else []
        for expect in turn.expect:
            wrong = mismatch(expect, results)
            if wrong is not None:
                raise ModelError(f"{label}: the script does not fit what happened: {wrong}", kind="script_mismatch")
        text = "\n".join(map(result_text, results))
        for name, pattern in turn.capture.items():
            found = re.search(pattern, text)
            if found is None:
                wrong = f"capture {name}: nothing matches {pattern!r} in {_quote(text)}"
                raise ModelError(f"{label}: the script does not fit what happened: {wrong}", kind="script_mismatch")
            self._names[name] = found.group(1) if found.re.groups else found.group(0)


def build_answer(turn: Turn, id_stem: str, model: str, names: dict[str, str]) -> Answer:
    """The answer a turn stands for. Tool ids are `id_stem` and the number of the call, so they never change."""
    blocks: list[JsonObject] = []
    malformed: dict[str, str] = {}
    if turn.thinking is not None:
        thinking = fill_in(turn.thinking, names)
        blocks.append({"type": "thinking", "thinking": thinking, "signature": sign_thinking(thinking)})
    if turn.text is not None and turn.text.strip():
        blocks.append({"type": "text", "text": fill_in(turn.text, names)})
    for number, call in enumerate(turn.tools, start=1):
        blocks.append(_tool_use(call, f"{id_stem}_{number}", names, malformed))
    blocks.extend(fill_in(block, names) for block in turn.content or ())
    calls = any(block.get("type") == "tool_use" for block in blocks)
    return Answer(
        content=tuple(blocks),
        stop_reason=turn.stop_reason or ("tool_use" if calls else "end_turn"),
        usage=Usage(**{str(key): count for key, count in turn.usage.items()}),
        model=model,
        malformed=malformed,
    )


def _tool_use(call: ToolCall, call_id: str, names: dict[str, str], malformed: dict[str, str]) -> JsonObject:
    tool_input: Any = fill_in(call.input, names)
    if isinstance(tool_input, str):
        malformed[call_id] = tool_input
        tool_input = {}
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": tool_input}


def sign_thinking(text: str) -> str:
    """The signature of a played thinking block; the API double checks it, as the real API checks its own."""
    return "script-" + hashlib.sha256(json.dumps(text).encode()).hexdigest()[:32]


def streamed(answer: Answer, size_chars: int) -> Iterator[ModelEvent]:
    """What a live stream of an answer brings: thinking and text in pieces, and every block when it is complete."""
    makers: dict[str, Callable[[str], ModelEvent]] = {"text": TextPiece, "thinking": ThinkingPiece}
    for index, block in enumerate(answer.content):
        make = makers.get(str(block.get("type")))
        if make is not None:
            text = str(block.get(block["type"], ""))
            yield from (make(text[start : start + size_chars]) for start in range(0, len(text), size_chars))
        yield BlockDone(index, block, answer.malformed.get(str(block.get("id"))))


def mismatch(expect: Expect, results: Sequence[JsonObject]) -> str | None:
    """What is wrong with the tool results by `expect`, in words; None when they fit."""
    if not results:
        return "there are no tool results"
    if expect.call is not None and expect.call >= len(results):
        return f"there is no result of call {expect.call}, only {len(results)} in all (counted from 0)"
    chosen = results if expect.call is None else [results[expect.call]]
    where = "the results" if expect.call is None else f"the result of call {expect.call}"
    text = "\n".join(map(result_text, chosen))
    failed = any(block.get("is_error") is True for block in chosen)
    if expect.is_error is not None and failed is not expect.is_error:
        found = "an error" if failed else "no error"
        return f"{where} should be {'an error' if expect.is_error else 'no error'} but {found} came: {_quote(text)}"
    for wanted in expect.contains:
        if wanted not in text:
            return f"{where} should contain {wanted!r}: {_quote(text)}"
    for unwanted in expect.not_contains:
        if unwanted in text:
            return f"{where} should not contain {unwanted!r}: {_quote(text)}"
    return None


def first_user_text(request: ModelRequest) -> str:
    """The task: the last text of the first user message (what an engine adds stands before it, a summary behind it)."""
    content = next((message["content"] for message in request.messages if message.get("role") == "user"), "")
    if isinstance(content, str):
        return content
    texts = [str(block["text"]) for block in content if block.get("type") == "text"]
    summary = next((place for place, text in enumerate(texts) if text.startswith(SUMMARY_MARK)), len(texts))
    return texts[summary - 1] if summary else ""


def result_blocks(message: JsonObject) -> list[JsonObject]:
    """The tool_result blocks of a message."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return []
    return [block for block in content if block.get("type") == "tool_result"]


def result_text(block: JsonObject) -> str:
    """The text of a tool_result block; images and documents count as nothing."""
    content = block.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")


def fill_in(value: Any, names: dict[str, str]) -> Any:
    """`value` with every {{name}} that is known put in; unknown ones stay, files are full of double braces."""
    if isinstance(value, str):
        return re.sub(r"\{\{(\w+)\}\}", lambda match: names.get(match.group(1), match.group(0)), value)
    if isinstance(value, list):
        return [fill_in(item, names) for item in value]
    if isinstance(value, dict):
        return {key: fill_in(item, names) for key, item in value.items()}
    return value


def _quote(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} ... {text[-half:]!r}"
