"""What a hook said, made of its exit code and its output. Anything that does not fit is a fault, never a guess."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from sandbox_agent.engine.hook_process import HookEnd
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.types import MAX_NESTING, JsonObject, Verdict, nests_too_deep

BLOCKED = 2
"""The exit code that blocks, with the reason on standard error."""

MAX_REASON_CHARS = 4_000
MAX_CONTEXT_CHARS = 30_000
MAX_NAME_CHARS = 200
"""Of a name that a hook made up, in what is said of it."""


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What a hook says; all left out means nothing.

    `verdict` DENY blocks, ASK has the person asked; ALLOW counts only from a function of the embedding program, which
    may answer a question as the approver would. `updated_input` replaces the input of a call that has not run.
    `context` is told to the model. `fault` is set where the hook failed; a hook that decides has then denied.
    """

    verdict: Verdict | None = None
    reason: str | None = None
    updated_input: JsonObject | None = None
    context: str | None = None
    fault: str | None = None


Said = Literal["allow", "approve", "ask", "block", "deny"]
_VERDICTS: dict[Said, Verdict] = {
    "allow": Verdict.ALLOW,
    "approve": Verdict.ALLOW,
    "ask": Verdict.ASK,
    "block": Verdict.DENY,
    "deny": Verdict.DENY,
}


class _Output(BaseModel):
    """The JSON of a hook, in our names or in those that hooks of Claude Code use; a name that is neither is a fault."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True)

    decision: Said | None = None
    reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None
    permission_decision: Said | None = None
    permission_decision_reason: str | None = None
    hook_event_name: str | None = None
    hook_specific_output: _Output | None = None
    goes_on: Literal[True] = Field(default=True, alias="continue")
    suppress_output: bool = False


def read_answer(event: HookEvent, end: HookEnd) -> HookAnswer:
    """The answer of a program that has ended."""
    if end.fault is not None:
        return HookAnswer(fault=end.fault)
    if end.exit_code == BLOCKED:
        return HookAnswer(Verdict.DENY, cut(_text(end.stderr), MAX_REASON_CHARS) or "it gave no reason")
    if end.exit_code != 0:
        said = cut(_text(end.stderr), MAX_REASON_CHARS)
        return HookAnswer(fault=f"ended with exit code {end.exit_code}{f': {said}' if said else ''}")
    text = _text(end.stdout)
    if not text:
        return HookAnswer()
    if event is HookEvent.SESSION_START and not text.startswith("{"):
        return HookAnswer(context=cut(text, MAX_CONTEXT_CHARS))
    return checked(event, _read_json(text))


_WITHOUT_CONTEXT = (
    HookEvent.STOP,
    HookEvent.SUBAGENT_STOP,
    HookEvent.SESSION_END,
    HookEvent.PERMISSION_REQUEST,
)


def checked(event: HookEvent, answer: HookAnswer) -> HookAnswer:
    """The answer, or a fault where it says what this event has no room for, or more than can be used."""
    if answer.updated_input is not None:
        if event is not HookEvent.PRE_TOOL_USE:
            return HookAnswer(fault=f"gave an updated input, which {event.value} cannot use")
        if nests_too_deep(answer.updated_input):
            return HookAnswer(fault=f"gave an input that nests more than {MAX_NESTING} levels deep")
    if answer.context is not None and event in _WITHOUT_CONTEXT:
        return HookAnswer(fault=f"gave a context, which {event.value} cannot use")
    return answer


def cut(text: str, most_chars: int) -> str:
    """The text, or its beginning and how long it was."""
    return text if len(text) <= most_chars else f"{text[:most_chars]} [cut; {len(text)} characters in all]"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def _read_json(text: str) -> HookAnswer:
    try:
        fields = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        return HookAnswer(fault=f"wrote what is not JSON ({exc})")
    try:
        output = _Output.model_validate(fields)
    except (ValidationError, RecursionError) as exc:
        return HookAnswer(fault=f"wrote JSON that is no answer ({_first(exc)})")
    parts = [output, output.hook_specific_output or _Output()]
    said = [name for part in parts for name in (part.decision, part.permission_decision) if name is not None]
    reasons = [why for part in parts for why in (part.permission_decision_reason, part.reason) if why]
    contexts = [part.additional_context for part in parts if part.additional_context]
    inputs = [part.updated_input for part in parts if part.updated_input is not None]
    return HookAnswer(
        max((_VERDICTS[name] for name in said), default=None),
        cut("\n".join(reasons), MAX_REASON_CHARS) or None,
        inputs[-1] if inputs else None,
        cut("\n".join(contexts), MAX_CONTEXT_CHARS) or None,
    )


def _first(exc: ValidationError | RecursionError) -> str:
    if isinstance(exc, RecursionError):
        return "it nests too deeply"
    error = exc.errors(include_url=False, include_input=False)[0]
    where = cut(".".join(map(str, error["loc"])), MAX_NAME_CHARS)
    return f"{where}: {error['msg']}" if where else str(error["msg"])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
