"""What the Messages API refuses about a conversation: roles, blocks, and the pairing of calls and results."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from sandbox_agent.models.script_player import sign_thinking
from sandbox_agent.testing.api_refusal import expect_keys, expect_type, refuse
from sandbox_agent.types import JsonObject

_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}\Z")
_IMAGE_MAGIC = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
_MAX_IMAGE_BASE64 = 5 * 1024 * 1024

_KEYS: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "citations"}),
    "image": frozenset({"source"}),
    "document": frozenset({"source", "title", "context", "citations"}),
    "tool_use": frozenset({"id", "name", "input", "caller"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
}
_ROLE_BLOCKS = {
    "user": frozenset({"text", "image", "document", "tool_result"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_RESULT_BLOCKS = frozenset({"text", "image", "document"})


def check_messages(messages: Any, *, has_tools: bool, own_blocks: frozenset[str]) -> None:
    """Refuse a conversation the API refuses. `own_blocks` are assistant blocks of other kinds that the API itself sent.

    Raises:
        Refused: with status 400 and a text that names message and block.
    """
    expect_type(messages, list, "messages")
    if not messages:
        refuse("messages", "at least one message is required")
    for place, message in enumerate(messages):
        _check_message(message, f"messages.{place}", own_blocks, final=place == len(messages) - 1)
    if messages[0]["role"] != "user":
        refuse("messages", 'first message must use the "user" role')
    turns = _merged(messages)
    _check_pairs(turns)
    used = any(block.get("type") in ("tool_use", "tool_result") for turn in turns for block in turn[2])
    if used and not has_tools:
        refuse("tools", "Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_message(message: Any, where: str, own_blocks: frozenset[str], *, final: bool) -> None:
    expect_type(message, dict, where)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLE_BLOCKS:
        refuse(f"{where}.role", f"Unexpected role {role!r}; it is 'user' or 'assistant'")
    expect_keys(message, frozenset({"role", "content"}), where)
    content = message.get("content")
    prefill = final and role == "assistant"
    if isinstance(content, str):
        if not content.strip() and not prefill:
            refuse(where, "text content blocks must contain non-whitespace text")
        if prefill and content != content.rstrip():
            refuse(where, "final assistant content cannot end with trailing whitespace")
        return
    expect_type(content, list, f"{where}.content")
    if not content and not prefill:
        refuse(where, "all messages must have non-empty content except for the optional final assistant message")
    for place, block in enumerate(content):
        if role == "user" or not isinstance(block, dict) or block.get("type") not in own_blocks:
            _check_block(block, _ROLE_BLOCKS[role], f"{where}.content.{place}")
    if role == "assistant" and content and content[-1].get("type") in ("thinking", "redacted_thinking"):
        refuse(where, f"The final block in an assistant message cannot be `{content[-1]['type']}`.")
    if (
        prefill
        and content
        and content[-1].get("type") == "text"
        and content[-1]["text"] != content[-1]["text"].rstrip()
    ):
        refuse(where, "final assistant content cannot end with trailing whitespace")


def _check_block(block: Any, allowed: frozenset[str], where: str) -> None:
    expect_type(block, dict, where)
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        refuse(where, f"Input tag {kind!r} does not match any of the expected tags: {', '.join(sorted(allowed))}")
    expect_keys(block, _KEYS[kind] | {"type", "cache_control"}, f"{where}.{kind}")
    match kind:
        case "text":
            expect_type(block.get("text"), str, f"{where}.text.text")
            if not block["text"]:
                refuse(where, "text content blocks must be non-empty")
            if not block["text"].strip():
                refuse(where, "text content blocks must contain non-whitespace text")
        case "image" | "document":
            _check_source(block, f"{where}.{kind}.source")
        case "tool_use":
            _check_tool_use(block, f"{where}.tool_use")
        case "tool_result":
            _check_tool_result(block, f"{where}.tool_result")
        case "thinking":
            expect_type(block.get("thinking"), str, f"{where}.thinking.thinking")
            expect_type(block.get("signature"), str, f"{where}.thinking.signature")
            if block["signature"] != sign_thinking(block["thinking"]):
                refuse(where, "Invalid `signature` in `thinking` block")
        case "redacted_thinking":
            expect_type(block.get("data"), str, f"{where}.redacted_thinking.data")


def _check_tool_use(block: JsonObject, where: str) -> None:
    expect_type(block.get("id"), str, f"{where}.id")
    if not _ID.match(block["id"]):
        refuse(f"{where}.id", f"String should match pattern '^[a-zA-Z0-9_-]+$': {block['id']!r}")
    expect_type(block.get("name"), str, f"{where}.name")
    if not _CALL_NAME.match(block["name"]):
        refuse(f"{where}.name", f"String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$': {block['name']!r}")
    expect_type(block.get("input"), dict, f"{where}.input")


def _check_tool_result(block: JsonObject, where: str) -> None:
    expect_type(block.get("tool_use_id"), str, f"{where}.tool_use_id")
    expect_type(block.get("is_error", False), bool, f"{where}.is_error")
    failed = block.get("is_error", False)
    content = block.get("content", "")
    if failed and not content:
        refuse(where, "content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        return
    expect_type(content, list, f"{where}.content")
    for place, part in enumerate(content):
        _check_block(part, _RESULT_BLOCKS, f"{where}.content.{place}")
        if failed and part["type"] != "text":
            refuse(where, 'all content must be type "text" if `is_error` is true')


def _check_source(block: JsonObject, where: str) -> None:
    source = block.get("source")
    expect_type(source, dict, where)
    assert isinstance(source, dict)
    kind, media_type, data = source.get("type"), source.get("media_type"), source.get("data")
    if block["type"] == "document" and kind == "text":
        expect_type(data, str, f"{where}.text.data")
        if media_type != "text/plain":
            refuse(f"{where}.text.media_type", "Input should be 'text/plain'")
        return
    if kind != "base64":
        refuse(where, f"the double takes no source of type {kind!r}")
    expect_type(data, str, f"{where}.base64.data")
    allowed = tuple(_IMAGE_MAGIC) if block["type"] == "image" else ("application/pdf",)
    if media_type not in allowed:
        refuse(f"{where}.base64.media_type", f"Input should be one of {', '.join(allowed)}: {media_type!r}")
    assert isinstance(data, str)
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        refuse(f"{where}.base64.data", "invalid base64 data")
    if len(data) > _MAX_IMAGE_BASE64 and block["type"] == "image":
        refuse(f"{where}.base64", "image exceeds 5 MB maximum")
    magic = _IMAGE_MAGIC.get(str(media_type), b"%PDF")
    if not raw.startswith(magic):
        refuse(f"{where}.base64.data", f"the data is not of the media type {media_type}")


def _merged(messages: list[JsonObject]) -> list[tuple[int, str, list[JsonObject]]]:
    """The turns: neighbours of one role are one turn, as the API reads them; each with its first place."""
    turns: list[tuple[int, str, list[JsonObject]]] = []
    for place, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(blocks)
        else:
            turns.append((place, message["role"], list(blocks)))
    return turns


def _check_pairs(turns: list[tuple[int, str, list[JsonObject]]]) -> None:
    seen: set[str] = set()
    calls: list[str] = []
    for number, (place, role, blocks) in enumerate(turns):
        where = f"messages.{place}"
        if role == "user":
            _check_results(where, blocks, calls)
            continue
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call in calls:
            if call in seen:
                refuse(where, f"`tool_use` ids must be unique: {call}")
            seen.add(call)
        if calls and number == len(turns) - 1:
            _refuse_unanswered(where, calls)


def _check_results(where: str, blocks: list[JsonObject], calls: list[str]) -> None:
    answered: list[str] = []
    leading: list[str] = []
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call = block["tool_use_id"]
        if call not in calls:
            refuse(
                f"{where}.content.{place}",
                f"unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each `tool_result` block must have a "
                "corresponding `tool_use` block in the previous message.",
            )
        if call in answered:
            refuse(
                f"{where}.content.{place}",
                f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call}",
            )
        if place == len(answered):
            leading.append(call)
        answered.append(call)
    missing = [call for call in calls if call not in leading]
    if missing:
        _refuse_unanswered(where, missing)


def _refuse_unanswered(where: str, calls: list[str]) -> None:
    refuse(
        where,
        f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message, before any text.",
    )
