"""What goes out: empty text removed and prompt-cache marks set, always on copies, never in the caller's history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sandbox_agent.models.base import ModelRequest
from sandbox_agent.types import JsonObject

MAX_MARKS = 4
"""How many cache marks the API takes in one request."""

_LONG_MARK: JsonObject = {"type": "ephemeral", "ttl": "1h"}
_SHORT_MARK: JsonObject = {"type": "ephemeral"}
_THINKING = frozenset({"thinking", "redacted_thinking"})
"""The API takes no cache mark on them."""


def request_body(request: ModelRequest, model: str, unwanted: Collection[str] = ()) -> JsonObject:
    """The body of a messages request: the parts of `request` without empty text, with cache marks.

    `unwanted` has thinking that is left out, as `proofs_in` finds it.

    System and tools are marked for an hour, for a person may think longer than five minutes over a question; the
    last user message and the one before it (the API looks back 20 blocks only) for five minutes.
    """
    messages = _without_empty_text(without_thinking(request.messages, unwanted))
    system = [block for block in request.system if not _is_empty_text(block)]
    tools = list(request.tools)
    free = MAX_MARKS - sum(_count_marks(part) for part in (messages, system, tools))
    users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if users:
        free -= _mark_message(messages, users[-1], free)
    free -= _mark_last(tools, _LONG_MARK, free)
    free -= _mark_last(system, _LONG_MARK, free)
    if len(users) > 1:
        _mark_message(messages, users[-2], free)
    body: JsonObject = {"model": model, "max_tokens": request.max_tokens, "messages": messages}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
    return body


def proofs_in(messages: Iterable[JsonObject]) -> set[str]:
    """What the API recognises the thinking in these messages by: signatures, and the data of what is redacted."""
    return {proof for message in messages for block in _blocks(message) if (proof := _proof(block)) is not None}


def without_thinking(messages: Iterable[JsonObject], unwanted: Collection[str]) -> list[JsonObject]:
    """The messages without the thinking whose proof is among `unwanted`; the very same objects where there is none."""
    return [_without_thinking(message, unwanted) for message in messages]


def _without_thinking(message: JsonObject, unwanted: Collection[str]) -> JsonObject:
    blocks = _blocks(message)
    kept = [block for block in blocks if _proof(block) not in unwanted]
    return message if len(kept) == len(blocks) else {**message, "content": kept}


def _blocks(message: JsonObject) -> Sequence[JsonObject]:
    content = message.get("content")
    return content if message.get("role") == "assistant" and isinstance(content, list | tuple) else ()


def _proof(block: JsonObject) -> str | None:
    return str(block.get("signature") or block.get("data")) if block.get("type") in _THINKING else None


def replace_lone_surrogates(value: Any) -> Any:
    """`value` with every half of a surrogate pair as U+FFFD: JSON may hold one, but UTF-8 cannot carry it."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list | tuple):
        return [replace_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_lone_surrogates(key): replace_lone_surrogates(item) for key, item in value.items()}
    return value


def _is_empty_text(block: JsonObject) -> bool:
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def _without_empty_text(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """The messages without empty text blocks; one that holds nothing else is left out, the API takes none such."""
    kept: list[JsonObject] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            if content.strip():
                kept.append(message)
            continue
        blocks = [_clean_result(block) for block in content or () if not _is_empty_text(block)]
        if blocks:
            kept.append({**message, "content": blocks})
    if kept and kept[-1].get("role") == "assistant":
        kept[-1] = _trimmed(kept[-1])
    return kept


def _trimmed(message: JsonObject) -> JsonObject:
    """An unfinished answer that is sent back to be gone on with; the API takes no blank at its end."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content.rstrip()}
    last = content[-1]
    if last.get("type") != "text":
        return message
    return {**message, "content": [*content[:-1], {**last, "text": str(last["text"]).rstrip()}]}


def _clean_result(block: JsonObject) -> JsonObject:
    if block.get("type") != "tool_result":
        return block
    content = block.get("content", "")
    if not isinstance(content, str):
        content = [part for part in content if not _is_empty_text(part)]
        if len(content) == len(block["content"]) and content:
            return block
    if content:
        return {**block, "content": content}
    # The API refuses an error without content.
    return {**block, "content": "(no output)" if block.get("is_error") else ""}


def _count_marks(value: Any) -> int:
    if isinstance(value, dict):
        own = 1 if value.get("cache_control") else 0
        return own + (_count_marks(value["content"]) if "content" in value else 0)
    if isinstance(value, list | tuple):
        return sum(map(_count_marks, value))
    return 0


def _markable(block: JsonObject) -> bool:
    return block.get("type") not in _THINKING and not _is_empty_text(block)


def _mark_last(blocks: list[JsonObject], mark: JsonObject, free: int) -> int:
    """Put a mark on the last block that may carry one, in a copy of that block; returns how many were set."""
    if free <= 0:
        return 0
    for place in reversed(range(len(blocks))):
        if "cache_control" in blocks[place]:
            return 0
        if _markable(blocks[place]):
            blocks[place] = {**blocks[place], "cache_control": mark}
            return 1
    return 0


def _mark_message(messages: list[JsonObject], place: int, free: int) -> int:
    message = messages[place]
    content: str | Sequence[JsonObject] = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    marked = _mark_last(blocks, _SHORT_MARK, free)
    if marked:
        messages[place] = {**message, "content": blocks}
    return marked
