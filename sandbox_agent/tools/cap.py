"""Cutting what is too long for the model: the head and the tail stay, and a note between them says what is missing."""

from __future__ import annotations

from dataclasses import replace

from sandbox_agent.types import JsonObject, ToolResult


def cap(result: ToolResult, max_chars: int) -> ToolResult:
    """The result with its text cut to about `max_chars` in all; `meta["truncated"]` tells when something was cut.

    Text blocks share the budget in order; images and documents are left as they are.
    """
    if isinstance(result.content, str):
        if len(result.content) <= max_chars:
            return result
        return _marked(result, cut_middle(result.content, max_chars))
    if sum(len(_text(block)) for block in result.content) <= max_chars:
        return result
    left = max_chars
    blocks: list[JsonObject] = []
    for block in result.content:
        text = _text(block)
        if len(text) > left:
            block = {**block, "text": cut_middle(text, left)}
        left = max(0, left - len(text))
        blocks.append(block)
    return _marked(result, tuple(blocks))


def cut_middle(text: str, max_chars: int) -> str:
    """`text` if it fits, else its first and last `max_chars / 2` characters with a note of how many are missing."""
    if len(text) <= max_chars:
        return text
    head, tail = text[: max_chars // 2], text[len(text) - max_chars // 2 :]
    missing = len(text) - len(head) - len(tail)
    return f"{head}\n[... {missing:,} of {len(text):,} characters are not shown here ...]\n{tail}"


def _text(block: JsonObject) -> str:
    return str(block.get("text", "")) if block.get("type") == "text" else ""


def _marked(result: ToolResult, content: str | tuple[JsonObject, ...]) -> ToolResult:
    return replace(result, content=content, meta={**result.meta, "truncated": True})
