"""A long conversation made shorter, as pure functions: which results to trim, what to ask the model for, what is kept.

What comes out is valid wherever what went in was: calls and their results stay together, and the last answer goes back
as it came, thinking included. What a person said is kept word for word; instructions are no part of the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sandbox_agent.engine import history
from sandbox_agent.engine.window import CHARS_PER_TOKEN, estimate
from sandbox_agent.prompts import prompt
from sandbox_agent.types import SUMMARY_MARK, JsonObject

KEPT_TURNS = 3
"""The results of so many last turns are not trimmed."""
WORTH_CHARS = 400
"""A shorter result is not trimmed: what takes its place is nearly as long."""
SAID_PART = 0.2
"""What the person said, beside the task, may take that part of the window in a compacted conversation."""
TAIL_PART = 0.3
"""So may the last step; the longest of its results give way."""
DIGEST_PART = 0.4
"""The log that a model is shown when it cannot be shown the conversation."""
SHOWN_FILES = 20

_NONE = "(none)"
_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_READERS = ("Read", "NotebookRead")
_PATHS = ("file_path", "notebook_path")
_RESULT_CHARS, _INPUT_CHARS = 600, 300
_OPENS_OR_CLOSES = re.compile(
    r"<(?=\s*/?\s*(?:conversation-summary|todo-list|recent-files|permissions|background|log)\b)", re.IGNORECASE
)
"""The beginning of a mark that tells a part of a summary, or the log for it, from what is around."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a compacted conversation says besides: the permissions in words, the working directory, and what runs in the
    background, a line each."""

    permissions: str
    cwd: str
    background: str = ""


def worth_trimming(messages: Sequence[JsonObject]) -> tuple[str, ...]:
    """The calls whose results can go, oldest first: long ones, not of the last turns, not trimmed before."""
    answering = [message for message in messages if any(_results(message))]
    return tuple(
        str(block["tool_use_id"])
        for message in answering[:-KEPT_TURNS]
        for block in _results(message)
        if _is_long(block)
    )


def too_long_at_once(messages: Sequence[JsonObject], window_tokens: int) -> tuple[str, ...]:
    """The calls of the last step whose results have to go, longest first: they alone take too much of the window."""
    return _too_long(messages[max(_tail_start(messages), 0) :], int(TAIL_PART * window_tokens))


def can_compact(messages: Sequence[JsonObject]) -> bool:
    """Whether a summary could stand for anything: there is more than a task and one step, and no call is left open."""
    start = _tail_start(messages)
    calls = [block for block in messages[start]["content"] if block.get("type") == "tool_use"] if messages else []
    return start > 1 and (not calls or start < len(messages) - 1)


def compacted(messages: Sequence[JsonObject], summary: str, facts: Facts, window_tokens: int) -> list[JsonObject]:
    """What the conversation becomes: the task, the summary, what the person said since, and the last step as it was.

    Args:
        messages: one that `can_compact` takes.
        summary: the model's own words for what happened.
        facts: see there.
        window_tokens: how long it may be: what people said and the last step may take a part of that.
    """
    start = _tail_start(messages)
    before, tail = messages[:start], messages[start:]
    text = prompt("engine/compacted").format(
        summary=_unmarked(summary.strip()),
        todo=_todo(messages),
        files=_files(messages),
        permissions=_unmarked(facts.permissions) or _NONE,
        background=_unmarked(facts.background) or _NONE,
        cwd=_unmarked(facts.cwd),
    )
    first, later = _said(before, int(SAID_PART * window_tokens))
    shorter = list(tail)
    history.trim(shorter, _too_long(tail, int(TAIL_PART * window_tokens)))
    return [{"role": "user", "content": [*first, _text(text), *later]}, *shorter]


def whole_request(messages: Sequence[JsonObject], focus: str | None) -> list[JsonObject]:
    """The conversation and, behind it, what is wanted: its beginning is still in the model's cache."""
    return _with_text(messages, _instructions(focus))


def trimmed_request(messages: Sequence[JsonObject], focus: str | None) -> list[JsonObject]:
    """The same without any long result."""
    shorter = list(messages)
    history.trim(shorter, [str(block["tool_use_id"]) for one in messages for block in _results(one) if _is_long(block)])
    return whole_request(shorter, focus)


def digest_request(messages: Sequence[JsonObject], focus: str | None, window_tokens: int) -> list[JsonObject]:
    """A log of it as one text: the beginning, and of the rest as much of the end as there is room for."""
    room = int(DIGEST_PART * window_tokens) * CHARS_PER_TOKEN
    log = "\n".join(_log(messages))
    if len(log) > room:
        head = room // 4
        log = f"{log[:head]}\n[... {len(log) - room:,} characters left out ...]\n{log[head - room :]}"
    text = prompt("engine/compact_digest").format(log=_unmarked(log), instructions=_instructions(focus))
    return [{"role": "user", "content": [_text(text)]}]


def _instructions(focus: str | None) -> str:
    more = "\n\n" + prompt("engine/compact_focus").format(focus=focus) if focus else ""
    return prompt("engine/compact").format(focus=more)


def _tail_start(messages: Sequence[JsonObject]) -> int:
    """Where the last answer stands, -1 if there is none."""
    return max((place for place, one in enumerate(messages) if one["role"] == "assistant"), default=-1)


class _Said(NamedTuple):
    first: list[JsonObject]
    later: list[JsonObject]


def _said(messages: Sequence[JsonObject], room_tokens: int) -> _Said:
    """What the person said, and the engine in their place: the task whole, and of the rest the latest.

    What stands behind an earlier summary in the first message is not the task.
    """
    texts = [
        [block for block in one["content"] if block.get("type") != "tool_result"]
        for one in messages
        if one["role"] == "user"
    ]
    summary = next((place for place, block in enumerate(texts[0]) if _is_summary(block)), len(texts[0]))
    first = texts[0][:summary]
    kept: list[JsonObject] = []
    for block in reversed([*texts[0][summary + 1 :], *(block for blocks in texts[1:] for block in blocks)]):
        room_tokens -= estimate(block)
        if room_tokens < 0:
            break
        kept.insert(0, block)
    return _Said(first, kept)


def _too_long(tail: Sequence[JsonObject], room_tokens: int) -> tuple[str, ...]:
    excess = estimate(tail) - room_tokens
    found = []
    for block in sorted((one for part in tail for one in _results(part) if _is_long(one)), key=estimate, reverse=True):
        if excess <= 0:
            break
        excess -= estimate(block)
        found.append(str(block["tool_use_id"]))
    return tuple(found)


def _todo(messages: Sequence[JsonObject]) -> str:
    """The list as it was last taken over; one from an earlier summary counts until there is a newer one."""
    todos = last_todos(messages)
    if todos is None:
        return _earlier(messages, "todo-list") or _NONE
    lines = [f"{_MARKS.get(str(one.get('status')), '[ ]')} {one.get('content')}" for one in todos]
    return _unmarked("\n".join(lines)) or _NONE


def last_todos(messages: Sequence[JsonObject]) -> Sequence[JsonObject] | None:
    """The todo list as the last call gave it that did not fail; None where there is no such call."""
    failed = {block["tool_use_id"] for one in messages for block in _results(one) if block.get("is_error")}
    for call in reversed(list(_calls(messages))):
        todos = call["input"].get("todos")
        if call["name"] == "TodoWrite" and call["id"] not in failed and isinstance(todos, list):
            return todos
    return None


def _files(messages: Sequence[JsonObject]) -> str:
    """The files that were read or changed last, the newest last."""
    found: dict[str, str] = {}
    for line in (_earlier(messages, "recent-files") or "").splitlines():
        path, _, how = line.rpartition(" (")
        if path:
            found[path] = how.rstrip(")")
    for call in _calls(messages):
        named = next((call["input"][key] for key in _PATHS if isinstance(call["input"].get(key), str)), None)
        if named is None or "\n" in named:
            continue
        before = found.pop(named, "read")
        found[named] = before if call["name"] in _READERS else "changed"
    lines = [f"{path} ({how})" for path, how in [*found.items()][-SHOWN_FILES:]]
    return _unmarked("\n".join(lines)) or _NONE


def _earlier(messages: Sequence[JsonObject], tag: str) -> str | None:
    """A part of the summary that the conversation begins with, if it does."""
    for block in messages[0]["content"]:
        if _is_summary(block):
            parts = re.findall(rf"<{tag}>\n(.*?)\n</{tag}>", str(block["text"]), re.DOTALL)
            return parts[-1] if parts and parts[-1] != _NONE else None
    return None


def _log(messages: Sequence[JsonObject]) -> Iterator[str]:
    for message in messages:
        who = "person" if message["role"] == "user" else "engineer"
        for block in message["content"]:
            match block.get("type"):
                case "text":
                    yield f"{who}: {block['text']}"
                case "tool_use":
                    given = json.dumps(block.get("input"), ensure_ascii=False)
                    yield f"engineer called {block['name']}: {_middle_out(given, _INPUT_CHARS)}"
                case "tool_result":
                    said = "failed" if block.get("is_error") else "gave"
                    yield f"that {said}: {_middle_out(_plain(block.get('content')), _RESULT_CHARS)}"
                case _:
                    pass


def _middle_out(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    half = most_chars // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "\n".join(str(one["text"]) if one.get("type") == "text" else f"<{one.get('type')}>" for one in parts)


def _with_text(messages: Sequence[JsonObject], text: str) -> list[JsonObject]:
    if messages and messages[-1]["role"] == "user":
        last = messages[-1]
        return [*messages[:-1], {**last, "content": [*last["content"], _text(text)]}]
    return [*messages, {"role": "user", "content": [_text(text)]}]


def _unmarked(text: str) -> str:
    """With nothing in it that ends, or begins, a part. Nothing is taken out: what is left could be a mark then."""
    return _OPENS_OR_CLOSES.sub("&lt;", text)


def _is_summary(block: JsonObject) -> bool:
    return block.get("type") == "text" and str(block["text"]).startswith(SUMMARY_MARK)


def _is_long(block: JsonObject) -> bool:
    content = block.get("content", "")
    if isinstance(content, str):
        return len(content) > WORTH_CHARS
    return estimate(content) * CHARS_PER_TOKEN > WORTH_CHARS


def _results(message: JsonObject) -> Iterator[JsonObject]:
    return (block for block in message["content"] if block.get("type") == "tool_result")


def _calls(messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
    return (
        block
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if block.get("type") == "tool_use" and isinstance(block.get("input"), dict)
    )


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
