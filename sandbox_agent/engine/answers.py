"""What an answer must be before anything of it is recorded or run: every call can be told from every other.

Results, decisions and the record name a call by its id alone, and the API refuses a conversation in which two calls
have the same one. A model behind another endpoint may send anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sandbox_agent.errors import ModelError
from sandbox_agent.models.base import Answer
from sandbox_agent.types import MAX_NESTING, JsonObject, nests_too_deep

_WORD = re.compile(r"[\x21-\x7e]{1,256}")
"""An id, or the name of a tool, that can go back: what the API itself gives is stricter, other endpoints are not."""

_SHOWN_CHARS = 60


def check_answer(answer: Answer, messages: Sequence[JsonObject]) -> None:
    """Refuse an answer that the engine could not go on from.

    Args:
        answer: the model's answer.
        messages: the conversation so far.

    Raises:
        ModelError: a block without a type, or nested too deep; a call without a usable id, name or input, or with the
            id of another call.
    """
    if nests_too_deep(answer.content):
        raise ModelError(f"{answer.model} sent content that nests more than {MAX_NESTING} levels deep")
    taken = call_ids(messages)
    for call in _calls(answer.content):
        wrong = fault_of(call, taken)
        if wrong is not None:
            raise ModelError(f"{answer.model} sent a tool call that cannot be carried out: {wrong}")
        taken.add(call["id"])
    if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in answer.content):
        raise ModelError(f"{answer.model} sent a content block without a type")


def call_ids(messages: Sequence[JsonObject]) -> set[str]:
    """The ids of all calls in a conversation."""
    return {str(call["id"]) for message in messages for call in _calls(_blocks(message))}


def fault_of(call: JsonObject, taken: Collection[str]) -> str | None:
    """What is wrong with a call, None if nothing is. `taken` has the ids of all others."""
    call_id, name = call.get("id"), call.get("name")
    if not isinstance(call_id, str) or not _WORD.fullmatch(call_id):
        return f"its id is not a short plain word ({_shown(call_id)})"
    if call_id in taken:
        return f"another call has the same id ({_shown(call_id)})"
    if not isinstance(name, str) or not name:
        return f"it names no tool ({_shown(name)})"
    if not _WORD.fullmatch(name):
        return f"the name of its tool is not a short plain word ({_shown(name)})"
    if not isinstance(call.get("input", {}), dict):
        return f"its input is not an object ({_shown(call['input'])})"
    return None


def _shown(value: object) -> str:
    return ascii(value)[:_SHOWN_CHARS]


def _calls(blocks: Iterable[JsonObject]) -> Iterable[JsonObject]:
    return (block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use")


def _blocks(message: JsonObject) -> Sequence[JsonObject]:
    content = message.get("content")
    return content if message.get("role") == "assistant" and isinstance(content, list | tuple) else ()
