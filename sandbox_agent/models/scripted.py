"""A model that plays a script: a YAML file of turns, or turns given from Python. It needs no key and no network.

    - text: I look at both files first.
      tools:
        - {name: Read, input: {file_path: /workspace/a.py}}
        - Grep: {pattern: total}            # the short form
    - expect: [{is_error: false, contains: "def total"}, "a.py"]     # by call; else the run fails here
      tools:
        - Bash: {command: pytest -q}
    - expect: "3 passed"
      text: "Done: {{task}}"

A script whose `expect` does not hold, or that has no turn left, ends the run with an error: it never plays on blindly.
The whole format is in docs/scripted-model.md.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from pydantic import ValidationError

from sandbox_agent.errors import ConfigError, ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import Answer, ModelEvent, ModelRequest, TextPiece, ThinkingPiece
from sandbox_agent.models.script_file import (
    Expect,
    Fault,
    Script,
    ToolCall,
    Turn,
    fill_in,
    read_script,
    result_blocks,
    result_text,
)
from sandbox_agent.types import JsonObject, Usage

Sleep = Callable[[float], Awaitable[None]]

_SHOWN_CHARS = 600
"""How much of a tool result an error about it quotes."""


def create(path: str) -> ScriptedModel:
    """The model that plays the script in the YAML file `path`.

    Raises:
        ConfigError: the file cannot be read or is not a script.
    """
    return ScriptedModel(script=read_script(Path(path)), source=path)


class ScriptedModel:
    """Plays turns in order. `requests` holds every request it got, oldest first."""

    def __init__(
        self,
        turns: Sequence[Mapping[str, Any] | Turn] = (),
        *,
        script: Script | None = None,
        source: str = "script",
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """Either `turns` (mappings in the format of the file) or a whole `script`.

        Raises:
            ConfigError: a turn is not in the format.
        """
        if script is None:
            try:
                script = Script.model_validate({"turns": tuple(turns)})
            except ValidationError as exc:
                error = exc.errors(include_url=False)[0]
                raise ConfigError(f"{source}: {'.'.join(map(str, error['loc']))}: {error['msg']}") from exc
        self.requests: list[ModelRequest] = []
        self._script = script
        self._source = source
        self._sleep = sleep
        self._played: dict[str, int] = {}
        self._names: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"script:{self._script.name or self._source}"

    @property
    def turns_left(self) -> int:
        """How many turns of the main list were not played yet."""
        return len(self._script.turns) - self._played.get("", 0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Play the next turn.

        Raises:
            ModelError: an `expect` or `capture` did not hold, or the script is at its end.
            ModelOverloadedError, ModelRejectedError: the turn is an `error`.
        """
        self.requests.append(request)
        agent = next((key for key in self._script.agents if key in first_user_text(request)), "")
        turns = self._script.agents[agent] if agent else self._script.turns
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
        await self._sleep(turn.delay_s)
        if turn.error is not None:
            raise _as_error(turn.error)
        agent_number = list(self._script.agents).index(agent) + 1 if agent else 0
        stem = f"toolu_script_{agent_number}_{place + 1}_{len(request.messages)}"
        answer = build_answer(turn, stem, self.name, {"task": first_user_text(request), **self._names})
        async for piece in self._pieces(turn, answer):
            yield piece
        yield answer

    async def aclose(self) -> None:
        """Nothing to give back."""

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
                shown = _quote(text)
                raise ModelError(
                    f"{label}: capture {name}: nothing matches {pattern!r} in {shown}", kind="script_mismatch"
                )
            self._names[name] = found.group(1) if found.re.groups else found.group(0)

    async def _pieces(self, turn: Turn, answer: Answer) -> AsyncIterator[ModelEvent]:
        size = turn.chunk_chars or self._script.chunk_chars
        pace_s = self._script.pace_s if turn.pace_s is None else turn.pace_s
        for event in text_pieces(answer, size):
            yield event
            await self._sleep(pace_s)


class FunctionModel:
    """Answers with what a function returns: an `Answer`, or a turn as a mapping. For tests and embedding programs."""

    def __init__(
        self,
        function: Callable[[ModelRequest], Answer | Mapping[str, Any] | Awaitable[Answer | Mapping[str, Any]]],
        *,
        name: str = "function",
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._function = function
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the function and stream what it says. What the function raises passes through."""
        self.requests.append(request)
        said = self._function(request)
        value = await said if inspect.isawaitable(said) else said
        if not isinstance(value, Answer):
            stem = f"toolu_function_{len(self.requests)}"
            value = build_answer(Turn.model_validate(value), stem, self._name, {})
        for piece in text_pieces(value, _SHOWN_CHARS):
            yield piece
        yield value

    async def aclose(self) -> None:
        """Nothing to give back."""


def build_answer(turn: Turn, id_stem: str, model: str, names: dict[str, str]) -> Answer:
    """The answer a turn stands for. Tool ids are `id_stem` and the number of the call, so they never change."""
    blocks: list[JsonObject] = []
    malformed: dict[str, str] = {}
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": fill_in(turn.thinking, names), "signature": "script"})
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
        try:
            tool_input = json.loads(tool_input)
        except ValueError:
            malformed[call_id] = tool_input
            tool_input = {}
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": tool_input}


def text_pieces(answer: Answer, size_chars: int) -> list[ModelEvent]:
    """The thinking and text of an answer, cut into pieces as a live stream would bring them."""
    pieces: list[ModelEvent] = []
    for block in answer.content:
        kind = block.get("type")
        if kind not in ("text", "thinking"):
            continue
        text = str(block.get(kind, ""))
        make = TextPiece if kind == "text" else ThinkingPiece
        pieces.extend(make(text[start : start + size_chars]) for start in range(0, len(text), size_chars))
    return pieces


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
    """The task: the last text of the first user message (what an engine adds stands before it)."""
    content = next((message["content"] for message in request.messages if message.get("role") == "user"), "")
    if isinstance(content, str):
        return content
    return next((str(block["text"]) for block in reversed(content) if block.get("type") == "text"), "")


def _as_error(fault: Fault) -> ModelError:
    cls = ModelOverloadedError if fault.passing else ModelRejectedError
    return cls(fault.message, kind=fault.kind, status=fault.status)


def _quote(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} ... {text[-half:]!r}"
