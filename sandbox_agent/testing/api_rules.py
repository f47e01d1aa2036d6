"""What the Messages API refuses about a request as a whole, its tools and its cache marks. Used by the API double.

The rules for the conversation itself are in `api_rules_messages.py`. Texts name the place as the real API does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sandbox_agent.models.outgoing import proofs_in
from sandbox_agent.testing.api_refusal import Refused, expect_keys, expect_type, refuse
from sandbox_agent.testing.api_rules_messages import check_messages
from sandbox_agent.types import JsonObject

MAX_MARKS = 4

_TOP_KEYS = frozenset(
    {
        "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences", "metadata",
        "temperature", "top_p", "top_k", "thinking", "service_tier", "output_config", "cache_control", "diagnostics",
        "container", "inference_geo",
    }
)  # fmt: skip
_TOOL_KEYS = frozenset(
    {
        "name", "description", "input_schema", "cache_control", "type", "strict", "eager_input_streaming",
        "defer_loading", "input_examples", "allowed_callers",
    }
)  # fmt: skip
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")


def check_headers(headers: Mapping[str, str], api_key: str | None, *, has_body: bool = True) -> None:
    """Refuse a request without a key, with another than `api_key` (None: any), without a version, or with a body that
    is not said to be JSON."""
    bearer = headers.get("authorization", "")
    given = headers.get("x-api-key") or (bearer.removeprefix("Bearer ") if bearer.startswith("Bearer ") else "")
    if not given:
        raise Refused(401, "authentication_error", "x-api-key header is required")
    if api_key is not None and given != api_key:
        raise Refused(401, "authentication_error", "invalid x-api-key")
    if not headers.get("anthropic-version"):
        refuse("anthropic-version", "header is required")
    if has_body and not headers.get("content-type", "").startswith("application/json"):
        refuse("content-type", "must be application/json")


def check_request(body: Any, *, counting: bool = False, own_blocks: frozenset[str] = frozenset()) -> None:
    """Refuse what the real API refuses. `counting` is for count_tokens, which takes no max_tokens.

    `own_blocks` are the kinds of assistant blocks that were sent and so may come back.

    Raises:
        Refused: with status 400 and a text that names the place.
    """
    if not isinstance(body, dict):
        refuse("body", "must be a JSON object")
    needed = ("model", "messages") if counting else ("model", "messages", "max_tokens")
    for key in needed:
        if key not in body:
            refuse(key, "Field required")
    expect_keys(body, _TOP_KEYS, "")
    expect_type(body["model"], str, "model")
    if not body["model"]:
        refuse("model", "String should have at least 1 character")
    if not counting:
        expect_type(body["max_tokens"], int, "max_tokens")
        if body["max_tokens"] < 1:
            refuse("max_tokens", "must be greater than or equal to 1")
    expect_type(body.get("stream", False), bool, "stream")
    _check_system(body.get("system", ""))
    _check_tools(body.get("tools", []))
    _check_tool_choice(body)
    check_messages(body["messages"], has_tools=bool(body.get("tools")), own_blocks=own_blocks)
    _check_marks(body)


def check_signers(body: JsonObject, signed: Mapping[str, Collection[str]]) -> None:
    """Refuse thinking that another model signed. `signed` has the models that gave it, by signature (or data).

    Raises:
        Refused: see `check_request`, which comes first.
    """
    for place, message in enumerate(body["messages"]):
        for proof in proofs_in([message]):
            if body["model"] not in signed.get(proof, (body["model"],)):
                refuse(f"messages.{place}", "Invalid `signature` in `thinking` block")


def _check_system(system: Any) -> None:
    if isinstance(system, str):
        return
    expect_type(system, list, "system")
    for place, block in enumerate(system):
        expect_type(block, dict, f"system.{place}")
        if block.get("type") != "text":
            refuse(f"system.{place}", "Input tag must be 'text'")
        expect_keys(block, frozenset({"type", "text", "cache_control", "citations"}), f"system.{place}")
        expect_type(block.get("text"), str, f"system.{place}.text")
        if not block["text"].strip():
            refuse("system", "text content blocks must be non-empty")


def _check_tools(tools: Any) -> None:
    expect_type(tools, list, "tools")
    names: set[str] = set()
    for place, tool in enumerate(tools):
        where = f"tools.{place}"
        expect_type(tool, dict, where)
        name = tool.get("name")
        expect_type(name, str, f"{where}.name")
        if name in names:
            refuse("tools", f"Tool names must be unique: {name}")
        names.add(name)
        if tool.get("type", "custom") != "custom":
            continue
        if not _TOOL_NAME.match(name):
            refuse(f"{where}.custom.name", f"String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$': {name!r}")
        expect_keys(tool, _TOOL_KEYS, f"{where}.custom")
        expect_type(tool.get("description", ""), str, f"{where}.custom.description")
        _check_schema(tool.get("input_schema"), f"{where}.custom.input_schema")


def _check_schema(schema: Any, where: str) -> None:
    if schema is None:
        refuse(where, "Field required")
    expect_type(schema, dict, where)
    if schema.get("type") != "object":
        refuse(f"{where}.type", "Input should be 'object'" if "type" in schema else "Field required")
    for key in ("oneOf", "allOf", "anyOf"):
        if key in schema:
            refuse(where, "input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties", {})
    expect_type(properties, dict, f"{where}.properties")
    for name in properties:
        if not _PROPERTY_NAME.match(name):
            refuse(f"{where}.properties", f"Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$': {name!r}")
    required = schema.get("required", [])
    expect_type(required, list, f"{where}.required")
    for ref in _refs(schema):
        if not _resolves(schema, ref):
            refuse(where, f"JSON schema is invalid: unresolvable $ref {ref!r}")


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _refs(item)


def _resolves(schema: JsonObject, ref: str) -> bool:
    if ref == "#":
        return True
    if not ref.startswith("#/"):
        return False
    node: Any = schema
    for part in ref[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def _check_tool_choice(body: JsonObject) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    expect_type(choice, dict, "tool_choice")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        refuse("tool_choice.type", "Input tag must be one of 'auto', 'any', 'tool', 'none'")
    if not body.get("tools"):
        refuse("tool_choice", "tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in {tool["name"] for tool in body["tools"]}:
        refuse("tool_choice", f"Tool {choice.get('name')!r} not found in provided tools")


def _check_marks(body: JsonObject) -> None:
    marks = list(_marks(body.get("tools", []), "tools"))
    marks += _marks(body.get("system", ""), "system")
    marks += _marks(body["messages"], "messages")
    total = len(marks) + (1 if body.get("cache_control") else 0)
    if total > MAX_MARKS:
        refuse("cache_control", f"A maximum of 4 blocks with cache_control may be provided. Found {total}.")
    short_seen = False
    for where, block in marks:
        mark = block["cache_control"]
        expect_type(mark, dict, f"{where}.cache_control")
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h") or set(mark) - {"type", "ttl"}:
            refuse(f"{where}.cache_control", f"not a cache mark: {mark!r}")
        if block.get("type") in ("thinking", "redacted_thinking"):
            refuse(f"{where}.{block['type']}.cache_control", "Extra inputs are not permitted")
        if block.get("type") == "text" and not str(block.get("text")).strip():
            refuse(where, "cache_control cannot be set for empty text blocks")
        if mark.get("ttl") == "1h" and short_seen:
            refuse(f"{where}.cache_control.ttl", "a ttl='1h' mark must not come after a ttl='5m' mark")
        short_seen = short_seen or mark.get("ttl", "5m") == "5m"


def _marks(value: Any, where: str) -> Iterator[tuple[str, JsonObject]]:
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield where, value
        if isinstance(value.get("content"), list):
            yield from _marks(value["content"], f"{where}.content")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _marks(item, f"{where}.{place}")
