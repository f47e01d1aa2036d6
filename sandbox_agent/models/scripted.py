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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from pydantic import ValidationError

from sandbox_agent.errors import ConfigError, ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import Answer, BlockDone, ModelEvent, ModelRequest
from sandbox_agent.models.script_file import Fault, Script, Turn, read_script
from sandbox_agent.models.script_player import ScriptPlayer, build_answer, streamed

Sleep = Callable[[float], Awaitable[None]]

_FUNCTION_PIECE_CHARS = 200


def create(path: str) -> ScriptedModel:
    """The model that plays the script in the YAML file `path`.

    Raises:
        ConfigError: the file cannot be read or is not a script.
    """
    return ScriptedModel(script=read_script(Path(path), Script), source=path)


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
        """Either `turns` (in the format of the file) or a whole `script`.

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
        self._player = ScriptPlayer(script.turns, script.agents, source)

    @property
    def name(self) -> str:
        return f"script:{self._script.name or self._source}"

    @property
    def turns_left(self) -> int:
        """How many turns of the main list were not played yet."""
        return self._player.turns_left

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Play the next turn.

        Raises:
            ModelError: an `expect` or `capture` did not hold, or the script is at its end.
            ModelOverloadedError, ModelRejectedError: the turn is an `error`.
        """
        self.requests.append(request)
        turn, id_stem, names = self._player.take(request)
        await self._sleep(turn.delay_s)
        if turn.error is not None:
            raise _as_error(turn.error)
        answer = build_answer(turn, id_stem, self.name, names)
        pace_s = self._script.pace_s if turn.pace_s is None else turn.pace_s
        for event in streamed(answer, turn.chunk_chars or self._script.chunk_chars):
            yield event
            if not isinstance(event, BlockDone):
                await self._sleep(pace_s)
        yield answer

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """What the script says."""
        return self._script.window_tokens

    async def aclose(self) -> None:
        """Nothing to give back."""


class FunctionModel:
    """Answers with what a function returns: an `Answer`, or a turn as a mapping. For tests and embedding programs."""

    def __init__(
        self,
        function: Callable[[ModelRequest], Answer | Mapping[str, Any] | Awaitable[Answer | Mapping[str, Any]]],
        *,
        name: str = "function",
        window_tokens: int | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._window_tokens = window_tokens
        self._function = function
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the function and stream what it says. What the function raises passes through."""
        self.requests.append(request)
        # By the request, for several may be under way; the count of messages keeps the ids of a resumed session, which
        # has a new model of this kind, apart from those before.
        stem = f"toolu_function_{len(self.requests)}_{len(request.messages)}"
        said = self._function(request)
        value = await said if inspect.isawaitable(said) else said
        if not isinstance(value, Answer):
            value = build_answer(Turn.model_validate(value), stem, self._name, {})
        for event in streamed(value, _FUNCTION_PIECE_CHARS):
            yield event
        yield value

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """As given."""
        return self._window_tokens

    async def aclose(self) -> None:
        """Nothing to give back."""


def _as_error(fault: Fault) -> ModelError:
    cls = ModelOverloadedError if fault.passing else ModelRejectedError
    return cls(fault.message, kind=fault.kind, status=fault.status)
