"""What a server answered, as content for the model: text, pictures, words for the rest; bounded, never empty."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any

import mcp_types

from sandbox_agent.tools.pictures import image_type
from sandbox_agent.types import JsonObject, ToolResult

MAX_PICTURES = 10
MAX_PICTURE_BYTES = 5 * 1024 * 1024
MAX_BLOCKS = 200
MAX_STRUCTURED_CHARS = 100_000
"""Kept in the record."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def result_of(answer: mcp_types.CallToolResult) -> ToolResult:
    """The result of a call. Text that says the same as the structured content is kept, the other left to the record."""
    blocks = _joined(_blocks(answer.content))
    structured = answer.structured_content
    if not blocks and structured is not None:
        blocks = [_text(json.dumps(structured, ensure_ascii=False, indent=1, default=str))]
    kept = structured is not None and len(json.dumps(structured, default=str)) <= MAX_STRUCTURED_CHARS
    meta: JsonObject = {"structured": structured} if kept else {}
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content: str | tuple[JsonObject, ...] = str(blocks[0]["text"]) if only_text else tuple(blocks)
    return ToolResult(content or "(the tool gave nothing)", is_error=answer.is_error, meta=meta)


def text_of(contents: Iterable[Any]) -> ToolResult:
    """What a resource holds."""
    blocks = [block for one in contents for block in _resource(one)]
    text = "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")
    return ToolResult(text or "(the resource is empty)")


def clean(text: str) -> str:
    """Without control characters and halves of surrogate pairs."""
    return _CONTROL.sub("\ufffd", text).encode("utf-8", "replace").decode("utf-8")


def _blocks(content: Iterable[Any]) -> Iterable[JsonObject]:
    pictures = 0
    for number, block in enumerate(content):
        if number >= MAX_BLOCKS:
            yield _text(f"(more than {MAX_BLOCKS} parts; the rest is left out)")
            return
        match block:
            case mcp_types.TextContent(text=text):
                yield _text(text)
            case mcp_types.ImageContent():
                pictures += 1
                yield _picture(block) if pictures <= MAX_PICTURES else _text("(a further picture, left out)")
            case mcp_types.AudioContent(mime_type=kind, data=data):
                yield _text(f"(audio, {kind}, {len(data) * 3 // 4:,} bytes; it cannot be shown)")
            case mcp_types.ResourceLink(uri=uri, name=name):
                yield _text(f"(resource {name}: {uri})")
            case mcp_types.EmbeddedResource(resource=resource):
                yield from _resource(resource)
            case _:
                yield _text(f"({getattr(block, 'type', type(block).__name__)}; it cannot be shown)")


def _resource(resource: Any) -> Iterable[JsonObject]:
    if isinstance(resource, mcp_types.TextResourceContents):
        yield _text(resource.text)
    else:
        kind = resource.mime_type or "of no stated kind"
        yield _text(f"({resource.uri}: {kind}, {len(resource.blob) * 3 // 4:,} bytes; it cannot be shown)")


def _picture(block: mcp_types.ImageContent) -> JsonObject:
    size_bytes = len(block.data) * 3 // 4
    what = f"a picture, {block.mime_type}, {size_bytes:,} bytes"
    if size_bytes > MAX_PICTURE_BYTES:
        return _text(f"({what}; it is too large to be shown)")
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return _text(f"({what}; it is damaged)")
    kind = image_type(data)  # by what is in it: the API refuses a request that says otherwise
    if kind is None:
        return _text(f"({what}; it cannot be shown)")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": block.data}}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": clean(text)}


def _joined(blocks: Iterable[JsonObject]) -> list[JsonObject]:
    """Text that follows text in one block; what is empty is left out."""
    found: list[JsonObject] = []
    for block in blocks:
        if block["type"] != "text":
            found.append(block)
        elif block["text"].strip():
            if found and found[-1]["type"] == "text":
                found[-1] = {"type": "text", "text": f"{found[-1]['text']}\n{block['text']}"}
            else:
                found.append(block)
    return found
