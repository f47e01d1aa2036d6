"""The conversation as the fold of events, valid by construction, and its repair when a record was cut.

Valid means what the Messages API takes: each tool_use is answered in the very next user message, results first and in
call order, no empty text and no empty message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sandbox_agent.events import (
    AssistantMessage,
    ConversationCleared,
    ConversationCompacted,
    Event,
    ResultsTrimmed,
    ToolResultsMessage,
    UserMessage,
)
from sandbox_agent.prompts import prompt
from sandbox_agent.types import JsonObject, ToolResult

INTERRUPTED = "Interrupted before this call finished. Its effects, if any, may be partial: check before you go on."
NO_OUTPUT = "(no output)"
TRIMMED = "(This result was taken out of the conversation to make room. Make the call again if you need it.)"


def extend(messages: list[JsonObject], event: Event) -> None:
    """Do to the conversation what `event` does to it, which is nothing for most events."""
    match event:
        case AssistantMessage(content=content):
            _append(messages, "assistant", _up_to_the_last_word(content))
        case UserMessage(content=content) | ToolResultsMessage(content=content):
            _append(messages, "user", content)
        case ResultsTrimmed(tool_use_ids=ids):
            trim(messages, ids)
        case ConversationCompacted(messages=shorter):
            messages[:] = shorter
        case ConversationCleared():
            messages.clear()
        case _:
            pass


def fold(events: Iterable[Event], *, agent_id: str = "main") -> list[JsonObject]:
    """The conversation of one agent, as messages of the Messages API."""
    messages: list[JsonObject] = []
    for event in events:
        if event.agent_id == agent_id:
            extend(messages, event)
    return messages


def trim(messages: list[JsonObject], tool_use_ids: Collection[str]) -> None:
    """Put a note in the place of what these calls gave."""
    ids = frozenset(tool_use_ids)
    for place, message in enumerate(messages):
        if any(block.get("tool_use_id") in ids for block in message["content"]):
            blocks = [
                {**block, "content": TRIMMED} if block.get("tool_use_id") in ids else block
                for block in message["content"]
            ]
            messages[place] = {**message, "content": blocks}


def interrupted(sub_agent: str | None = None) -> ToolResult:
    """What a call gives that did not finish; `sub_agent` is the one that it had at work."""
    more = "" if sub_agent is None else f" {prompt('engine/agent_interrupted').format(agent_id=sub_agent)}"
    return ToolResult(INTERRUPTED + more, is_error=True)


def result_block(tool_use_id: str, result: ToolResult) -> JsonObject:
    """The tool_result block of one call; never empty."""
    content: str | list[JsonObject]
    if isinstance(result.content, str):
        content = result.content if result.content.strip() else NO_OUTPUT
    else:
        content = [block for block in result.content if not _is_empty_text(block)] or NO_OUTPUT
    block: JsonObject = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    if result.is_error:
        block["is_error"] = True
    return block


class Repaired(NamedTuple):
    """A conversation made valid; `changes` counts what had to be added, dropped or moved (0: it was valid)."""

    messages: list[JsonObject]
    changes: int


def repair(messages: Sequence[JsonObject]) -> Repaired:
    """Make a recorded conversation valid: missing results become "interrupted" errors, orphans and empties go."""
    repaired: list[JsonObject] = []
    changes = 0
    pending: list[str] = []
    for message in messages:
        blocks = [block for block in message["content"] if not _is_empty_text(block)]
        changes += len(message["content"]) - len(blocks)
        if message["role"] == "assistant":
            changes += _answer(repaired, pending, [])
            pending = _tool_use_ids(blocks)
        else:
            results, rest = _split_results(blocks)
            if pending or results:
                changes += _answer(repaired, pending, results)
                pending = []
            blocks = rest
        _append(repaired, message["role"], tuple(blocks))
    changes += _answer(repaired, pending, [])
    if repaired and repaired[0]["role"] == "assistant":
        repaired.insert(0, {"role": "user", "content": [{"type": "text", "text": "(the start was lost)"}]})
        changes += 1
    return Repaired(repaired, changes)


def _answer(messages: list[JsonObject], pending: Sequence[str], results: Sequence[JsonObject]) -> int:
    """Append the results that `pending` calls need, in call order; returns how many had to be made up or dropped."""
    by_id = {str(block.get("tool_use_id")): block for block in reversed(results)}
    answered = [by_id.get(call, result_block(call, ToolResult(INTERRUPTED, is_error=True))) for call in pending]
    _append(messages, "user", tuple(answered))
    made_up = sum(call not in by_id for call in pending)
    dropped = len(results) - (len(pending) - made_up)
    moved = int(not made_up and not dropped and [str(block.get("tool_use_id")) for block in results] != list(pending))
    return made_up + dropped + moved


def _append(messages: list[JsonObject], role: str, content: Sequence[JsonObject]) -> None:
    """Append a message; empty text is left out, and blocks of the same role join the message before."""
    blocks = [block for block in content if not _is_empty_text(block)]
    if not blocks:
        return
    if messages and messages[-1]["role"] == role:
        messages[-1] = {"role": role, "content": [*messages[-1]["content"], *blocks]}
    else:
        messages.append({"role": role, "content": blocks})


def _up_to_the_last_word(content: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """An answer without the thinking at its end, which the API does not take back: it was cut in the middle of it, or
    has said nothing else."""
    end = len(content)
    while end and (
        content[end - 1].get("type") in ("thinking", "redacted_thinking") or _is_empty_text(content[end - 1])
    ):
        end -= 1
    return content[:end]


def _split_results(blocks: Sequence[JsonObject]) -> tuple[list[JsonObject], list[JsonObject]]:
    results = [block for block in blocks if block.get("type") == "tool_result"]
    return results, [block for block in blocks if block.get("type") != "tool_result"]


def _tool_use_ids(blocks: Sequence[JsonObject]) -> list[str]:
    return [str(block["id"]) for block in blocks if block.get("type") == "tool_use"]


def _is_empty_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and not str(block.get("text", "")).strip()
