"""The shape of a script for the scripted model, and reading it from YAML. Playing it is in `scripted.py`.

A wrong script is refused when it is read, with file and line, and never in the middle of a run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from sandbox_agent.errors import ConfigError

UsageKey = Literal[
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cache_creation_1h_input_tokens",
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolCall(_Part):
    """One tool_use block. `input` as a string is sent as is, to play JSON that does not parse."""

    name: str = Field(min_length=1)
    input: dict[str, Any] | str = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, dict) and "name" not in value and len(value) == 1:
            [(name, tool_input)] = value.items()
            return {"name": name, "input": {} if tool_input is None else tool_input}
        return value


class Expect(_Part):
    """What the last tool results must look like.

    `call` is the call it speaks of, counted from 0; None means all results together (`contains` is searched in their
    joined text, `is_error: false` means none failed, `is_error: true` that at least one did).
    """

    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()
    is_error: bool | None = None
    call: int | None = Field(default=None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"contains": value} if isinstance(value, str) else value

    @field_validator("contains", "not_contains", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class Fault(_Part):
    """An error instead of an answer. `passing` faults are what outlives the retries, others are refusals."""

    message: str
    kind: str | None = None
    status: int | None = None
    passing: bool = False


class Turn(_Part):
    """One answer of the model, and what must be true before it is given."""

    thinking: str | None = None
    text: str | None = None
    tools: tuple[ToolCall, ...] = ()
    content: tuple[dict[str, Any], ...] | None = None
    """Ready content blocks, in place of thinking, text and tools."""
    stop_reason: str | None = None
    """Default: tool_use when there are tool_use blocks, else end_turn."""
    usage: dict[UsageKey, int] = Field(default_factory=dict)
    delay_s: float = Field(default=0.0, ge=0)
    """Waited before anything streams."""
    chunk_chars: int | None = Field(default=None, ge=1)
    pace_s: float | None = Field(default=None, ge=0)
    """Waited after each piece of streamed text."""
    expect: tuple[Expect, ...] = ()
    capture: dict[str, str] = Field(default_factory=dict)
    """Name to regular expression: its first group (or the whole match) in the last tool results becomes {{name}}."""
    error: Fault | None = None

    @field_validator("expect", mode="before")
    @classmethod
    def _expect_by_position(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            return (value,)
        forms = ({"contains": item} if isinstance(item, str) else item for item in value)
        return tuple({"call": place, **item} if isinstance(item, dict) else item for place, item in enumerate(forms))

    @field_validator("capture")
    @classmethod
    def _patterns_compile(cls, value: dict[str, str]) -> dict[str, str]:
        for name, pattern in value.items():
            try:
                re.compile(pattern)
            except re.error as exc:
                raise ValueError(f"{name}: not a regular expression: {exc}") from exc
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Turn:
        if self.content is not None and (self.text is not None or self.tools or self.thinking is not None):
            raise ValueError("content cannot stand beside text, thinking or tools")
        if self.error is None and not (self.content or self.tools or (self.text or "").strip()):
            raise ValueError("a turn needs text, tools, content or error")
        return self


class Script(_Part):
    """A whole script. `agents` serves requests whose first user message contains the key from a list of their own."""

    turns: tuple[Turn, ...] = Field(min_length=1)
    name: str | None = None
    agents: Mapping[str, tuple[Turn, ...]] = Field(default_factory=dict)
    chunk_chars: int = Field(default=24, ge=1)
    pace_s: float = Field(default=0.0, ge=0)
    window_tokens: int | None = Field(default=None, ge=1)
    """How long a conversation may be; None leaves it to the engine."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"turns": value} if isinstance(value, list | tuple) else value


ScriptT = TypeVar("ScriptT", bound=Script)


def read_script(path: Path, shape: type[ScriptT]) -> ScriptT:
    """The script in a YAML file. `shape` is `Script`, or a wider kind of it.

    Raises:
        ConfigError: no such file, not YAML, or not a script; the text starts with `file:line`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot read the model script: {reason}") from exc
    try:
        root, data = _parsed(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "it cannot be read"
        raise ConfigError(f"{path}:{line}: not YAML: {problem}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{path}:1: not a model script: it is nested too deeply") from exc
    if not isinstance(data, list | dict):
        raise ConfigError(f"{path}:1: a model script is a list of turns, or a mapping with the key 'turns'")
    try:
        return shape.model_validate(data)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        where = error["loc"]
        place = where[1:] if isinstance(data, list) and where[:1] == ("turns",) else where
        shown = ".".join(map(str, where))
        raise ConfigError(f"{path}:{_line_of(root, place)}: {shown}: {_said(error)}") from exc


def _parsed(text: str) -> tuple[yaml.Node | None, Any]:
    """The document as nodes, which know their lines, and as data."""
    loader = yaml.SafeLoader(text)  # raises at once for characters that YAML does not take
    try:
        root = loader.get_single_node()
        return root, loader.construct_document(root) if root is not None else None
    finally:
        loader.dispose()


def _said(error: ErrorDetails) -> str:
    if error["type"] != "extra_forbidden":
        return error["msg"].removeprefix("Value error, ")
    keys = [key for part in _Part.__subclasses__() for key in part.model_fields]
    near = difflib.get_close_matches(str(error["loc"][-1]), keys, n=1)
    return "there is no such key" + (f"; did you mean {near[0]!r}?" if near else "")


def _line_of(node: yaml.Node | None, place: tuple[int | str, ...]) -> int:
    """The line, from 1, of the deepest node on the way to `place` that exists in the file."""
    line = node.start_mark.line + 1 if node is not None else 1
    for step in place:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(step):
                    child, line = value, key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            child = node.value[step]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
