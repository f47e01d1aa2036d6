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

_TEXTS = ("application/json", "application/xml", "application/javascript", "application/yaml")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def result_of(answer: mcp_types.CallToolResult) -> ToolResult:
    """The result of a call. Text that says the same as the structured content is kept, the other left to the record."""
    blocks = _joined(_bounded(_blocks(answer.content)))
    if answer.is_error:  # the API takes nothing but text in one
        words = _text("(a picture, which an error cannot have)")
        blocks = _joined(words if block["type"] == "image" else block for block in blocks)
    structured = answer.structured_content
    if not blocks and structured is not None:
        blocks = [_text(json.dumps(structured, ensure_ascii=False, indent=1, default=str))]
    kept = structured is not None and len(json.dumps(structured, default=str)) <= MAX_STRUCTURED_CHARS
    meta: JsonObject = {"structured": structured} if kept else {}
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content: str | tuple[JsonObject, ...] = str(blocks[0]["text"]) if only_text else tuple(blocks)
    return ToolResult(content or "(the tool gave nothing)", is_error=answer.is_error, meta=meta)


def contents_of(contents: Iterable[Any]) -> ToolResult:
    """What a resource holds."""
    blocks = _joined(_bounded(block for one in contents for block in _resource(one)))
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content: str | tuple[JsonObject, ...] = str(blocks[0]["text"]) if only_text else tuple(blocks)
    return ToolResult(content or "(the resource is empty)")


def clean(text: str) -> str:
    """Without control characters and halves of surrogate pairs."""
    return _CONTROL.sub("\ufffd", text).encode("utf-8", "replace").decode("utf-8")


def _bounded(blocks: Iterable[JsonObject]) -> Iterable[JsonObject]:
    """So many parts and pictures, and words for the rest."""
    pictures = 0
    for number, block in enumerate(blocks):
        if number >= MAX_BLOCKS:
            yield _text(f"(more than {MAX_BLOCKS} parts; the rest is left out)")
            return
        pictures += block["type"] == "image"
        too_many = block["type"] == "image" and pictures > MAX_PICTURES
        yield _text("(a further picture, left out)") if too_many else block


def _blocks(content: Iterable[Any]) -> Iterable[JsonObject]:
    for block in content:
        match block:
            case mcp_types.TextContent(text=text):
                yield _text(text)
            case mcp_types.ImageContent(data=data, mime_type=kind):
                yield _picture(data, f"a picture, {kind}, {_size(data)}")
            case mcp_types.AudioContent(mime_type=kind, data=data):
                yield _text(f"(audio, {kind}, {_size(data)}; it cannot be shown)")
            case mcp_types.ResourceLink(uri=uri, name=name):
                yield _text(f"(resource {name}: {uri})")
            case mcp_types.EmbeddedResource(resource=resource):
                yield from _resource(resource)
            case _:
                yield _text(f"({getattr(block, 'type', type(block).__name__)}; it cannot be shown)")


def _resource(resource: Any) -> Iterable[JsonObject]:
    if isinstance(resource, mcp_types.TextResourceContents):
        yield _text(resource.text)
        return
    kind = resource.mime_type or "of no stated kind"
    what = f"{resource.uri}: {kind}, {_size(resource.blob)}"
    if kind.startswith("image/"):
        yield _picture(resource.blob, what)
    elif kind.startswith("text/") or kind.partition(";")[0] in _TEXTS:
        yield _encoded_text(resource.blob, what)
    else:
        yield _text(f"({what}; it cannot be shown)")


def _encoded_text(data: str, what: str) -> JsonObject:
    """Text that a server has sent as if it were none."""
    try:
        return _text(base64.b64decode(data, validate=True).decode("utf-8"))
    except ValueError:  # which is what both say
        return _text(f"({what}; it is damaged, or not UTF-8)")


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4:,} bytes"


def _picture(data: str, what: str) -> JsonObject:
    if len(data) * 3 // 4 > MAX_PICTURE_BYTES:
        return _text(f"({what}; it is too large to be shown)")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _text(f"({what}; it is damaged)")
    kind = image_type(decoded)  # by what is in it: the API refuses a request that says otherwise
    if kind is None:
        return _text(f"({what}; it cannot be shown)")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


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
