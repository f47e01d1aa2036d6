"""A Jupyter notebook as the blocks a model reads: cells in order, each with its outputs."""

from __future__ import annotations

import json
from typing import Any

from sandbox_agent.tools.cap import cut_middle
from sandbox_agent.tools.pictures import MAX_IMAGE_BYTES
from sandbox_agent.types import JsonObject

MAX_OUTPUT_CHARS = 10_000
"""Of one output of a cell; more is cut in the middle."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def notebook_blocks(data: bytes) -> tuple[JsonObject, ...] | None:
    """The cells as content blocks; None if this is not a notebook's JSON."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    blocks: list[JsonObject] = [_text(f"[Jupyter notebook, {len(cells)} cells]")]
    for number, cell in enumerate(cells):
        if isinstance(cell, dict):
            blocks.append(_text(f"{_heading(number, cell)}\n{_joined(cell.get('source'))}"))
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else []:
                if isinstance(output, dict):
                    blocks.extend(_output(output))
    return _merged(blocks)


def _heading(number: int, cell: dict[str, Any]) -> str:
    ident = f" id={cell['id']}" if isinstance(cell.get("id"), str) else ""
    count = cell.get("execution_count")
    ran = f", run as [{count}]" if isinstance(count, int) else ""
    return f"--- cell {number}{ident} ({cell.get('cell_type', 'unknown')}{ran}) ---"


def _output(output: dict[str, Any]) -> list[JsonObject]:
    kind = output.get("output_type")
    if kind == "stream":
        return [_labelled(str(output.get("name", "stream")), _joined(output.get("text")))]
    if kind == "error":
        trace = output.get("traceback")
        lines = [str(line) for line in trace] if isinstance(trace, list) else []
        return [_labelled("error", "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}")]
    data = output.get("data")
    if not isinstance(data, dict):
        return []
    blocks = [_image(media_type, data[media_type]) for media_type in _IMAGES if media_type in data]
    if "text/plain" in data:
        blocks.insert(0, _labelled("result", _joined(data["text/plain"])))
    others = sorted(set(data) - {*_IMAGES, "text/plain"})
    if others and not blocks:
        blocks.append(_text(f"[output of type {', '.join(others)}, not shown]"))
    return blocks


def _image(media_type: str, value: object) -> JsonObject:
    encoded = "".join(_joined(value).split())
    if len(encoded) > MAX_IMAGE_BYTES * 4 // 3:
        return _text(f"[{media_type} output of {len(encoded):,} characters, too large to show]")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}


def _labelled(label: str, text: str) -> JsonObject:
    return _text(f"[{label}]\n{cut_middle(text, MAX_OUTPUT_CHARS)}")


def _joined(value: object) -> str:
    return "".join(str(part) for part in value) if isinstance(value, list) else str(value or "")


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _merged(blocks: list[JsonObject]) -> tuple[JsonObject, ...]:
    """Neighbouring texts become one block: a notebook of hundreds of cells is not hundreds of blocks."""
    merged: list[JsonObject] = []
    for block in blocks:
        if merged and block["type"] == "text" and merged[-1]["type"] == "text":
            merged[-1] = _text(f"{merged[-1]['text']}\n{block['text']}")
        else:
            merged.append(block)
    return tuple(merged)
