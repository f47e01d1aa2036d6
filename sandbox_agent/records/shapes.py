"""What the parts of a bundle must have for anybody to use them. Fields that are not named here may be there, too.

A chain says that nothing was changed since somebody wrote it, not that it was this program: without this check a bundle
of another make would end a replay with a fault of ours.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.types import JsonObject

_Blocks = list[dict[str, Any]]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Message(_Shape):
    role: str
    content: _Blocks


class _Tool(_Shape):
    name: str
    description: str
    input_schema: dict[str, Any]


class _Foreign(_Shape):
    source: str
    read_only: bool


class _Base(_Shape):
    sha256: str | None
    left_out: str | None = None


class _Lock(_Shape):
    version: int
    session: str
    task: str | None
    model: str
    fallback: str | None
    policy: dict[str, Any]
    types: dict[str, Any]
    approver: bool
    ask: bool
    answer_schema: dict[str, Any] | None = None
    environment: dict[str, str]
    not_pinned: list[str]
    recorded_unix_s: int
    workspace_host: str
    system: _Blocks
    tools: list[_Tool]
    foreign: dict[str, _Foreign]
    image: str
    image_id: str | None
    owner: list[int]
    base: _Base


class _Given(_Shape):
    messages: list[_Message]
    tree: str


class _Waiting(_Shape):
    content: _Blocks
    priority: int
    wakes: bool


class _Heard(_Shape):
    at: int
    messages: list[_Waiting]


class _Request(_Shape):
    sha256: str
    kept: int
    messages: list[_Message]
    seq: int = -1


class _Usage(_Shape):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class _Answer(_Shape):
    content: _Blocks
    stop_reason: str
    usage: _Usage
    model: str
    message_id: str | None
    malformed: dict[str, str]
    stop_details: dict[str, Any] | None


class _Fault(_Shape):
    sort: str = Field(alias="class")
    text: str
    kind: str | None
    status: int | None


class _Window(_Shape):
    tokens: int | None
    model: str | None


class _Turn(_Shape):
    calls: list[str]


class _Paths(_Shape):
    found: dict[str, str]


class _Decision(_Shape):
    call_id: str
    verdict: str
    asked: bool
    scope: str | None
    answered_by: str | None
    answer: str | None


class _Result(_Shape):
    call_id: str
    content: str | _Blocks
    is_error: bool
    meta: dict[str, Any]


class _Tree(_Shape):
    call: str | None
    sha256: str
    changed: dict[str, str | None]


class _Outcome(_Shape):
    status: str
    text: str
    tree: str


class _End(_Shape):
    blobs: list[str]
    left_out: dict[str, str]


_STEPS: dict[str, type[_Shape]] = {
    "given": _Given,
    "heard": _Heard,
    "request": _Request,
    "answer": _Answer,
    "fault": _Fault,
    "window": _Window,
    "turn": _Turn,
    "paths": _Paths,
    "decision": _Decision,
    "result": _Result,
    "tree": _Tree,
    "outcome": _Outcome,
    "end": _End,
}


def check_lock(lock: JsonObject) -> None:
    """Raises ReplayMismatchError: a field is missing, or is of another kind than any recording's."""
    _check(0, "the lock", _Lock, lock)
    unknown = [one["name"] for one in lock["tools"] if one["name"].startswith("mcp__")]
    if not lock["foreign"].keys() >= set(unknown):
        raise ReplayMismatchError("step 0: the lock of the bundle does not say what its tools of servers are", step=0)


def check_step(number: int, kind: str, data: JsonObject) -> None:
    """The same of a step's data; or it is a kind that no recording has."""
    if kind not in _STEPS:
        raise ReplayMismatchError(
            f"step {number} of the bundle is of no kind that recordings have: {kind}", step=number
        )
    _check(number, f"a step of the kind {kind}", _STEPS[kind], data)


def _check(number: int, what: str, shape: type[_Shape], value: JsonObject) -> None:
    try:
        shape.model_validate(value)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, error["loc"]))
        why = f"is not as {what} is: {where}: {error['msg']}"
        raise ReplayMismatchError(f"step {number} of the bundle {why}", step=number) from None
