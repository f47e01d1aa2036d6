"""What a server says, made fit before the package looks at it: one tool that makes no sense must not cost the others,
and one part of a result not the rest. Schemas of outputs are taken away, for the package would compare results with
them, patterns and all; a hash of each stays, so that a change of it is seen. Schemas of inputs that the package would
refuse are put aside for `schemas`, which makes something of most."""

from __future__ import annotations

import hashlib
from typing import Any

import mcp_types
from pydantic import TypeAdapter, ValidationError

from sandbox_agent.mcp.schemas import fingerprint
from sandbox_agent.types import JsonObject, nests_too_deep

MAX_TOOLS = 500
LEFT_OUT = "sandbox-agent/left-out"
"""In the `_meta` of a list: [name, reason] of what was taken out of it."""

_OURS = "sandbox-agent/"
_OUTPUT = "sandbox-agent/output"
_INPUT = "sandbox-agent/input"
_BLOCK: TypeAdapter[Any] = TypeAdapter(mcp_types.ContentBlock)


def made_fit(message: Any) -> Any:
    """A message of a transport, changed in place where it is an answer with tools or with content."""
    inner = getattr(message, "message", None)
    if isinstance(inner, mcp_types.JSONRPCResponse):
        result = inner.result
        if isinstance(result.get("tools"), list):
            _tools(result)
        elif isinstance(result.get("content"), list):
            result["content"] = [_block(one) for one in result["content"]]
        elif "structuredContent" in result:
            result.setdefault("content", [])
    return message


def _tools(result: JsonObject) -> None:
    kept: list[JsonObject] = []
    left_out: list[list[str]] = []
    # Who has more than may be is told so; there is no need to look at all of them for that.
    for number, tool in enumerate(result["tools"][: MAX_TOOLS + 1], 1):
        reason = _fault(tool)
        if reason is None:
            kept.append(_aside(tool))
            continue
        name = tool.get("name") if isinstance(tool, dict) else None
        left_out.append([name if isinstance(name, str) else f"(tool {number} of its list)", reason])
    meta = result.get("_meta")
    result["tools"] = kept
    result["_meta"] = {**(meta if isinstance(meta, dict) else {}), LEFT_OUT: left_out}


def _fault(tool: Any) -> str | None:
    if nests_too_deep(tool):
        return "what the server says of it is nested too deeply"
    try:
        mcp_types.Tool.model_validate(tool, by_name=False)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        return f"what the server says of it makes no sense: {where}: {first['msg']}"[:300]
    return None


def _aside(tool: JsonObject) -> JsonObject:
    meta = {key: value for key, value in (tool.get("_meta") or {}).items() if not key.startswith(_OURS)}
    made = {key: value for key, value in tool.items() if key != "outputSchema"}
    if tool.get("outputSchema") is not None:
        text = fingerprint(tool["outputSchema"])
        meta[_OUTPUT] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if tool["inputSchema"].get("type") != "object":
        meta[_INPUT] = tool["inputSchema"]
        made["inputSchema"] = {"type": "object"}
    return {**made, "_meta": meta} if meta else made


def input_schema_of(tool: mcp_types.Tool) -> Any:
    """What the server says a tool takes."""
    return (tool.meta or {}).get(_INPUT, tool.input_schema)


def _block(block: Any) -> Any:
    try:
        _BLOCK.validate_python(block, by_name=False)
    except (ValidationError, RecursionError):
        kind = block.get("type") if isinstance(block, dict) else None
        what = f"of the kind {kind[:60]!r}" if isinstance(kind, str) else "of no kind"
        return {"type": "text", "text": f"(a part {what}, which cannot be shown)"}
    return block
