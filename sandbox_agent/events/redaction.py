"""Takes secrets out of events before anybody keeps, shows or sends them: the record, all front ends, and the model.

A mark stands in the place of each: `[masked: .env DB_PASSWORD]`. Line ends are kept, for diffs are parsed again. What a
program has wrapped at a fixed width is found across the line ends. How values are found is in `finding`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sandbox_agent.events.base import Event
from sandbox_agent.events.calls import ToolResultsMessage
from sandbox_agent.events.dumps import windows
from sandbox_agent.events.encodings import MIN_FORM_CHARS, forms
from sandbox_agent.events.finding import Finder, Span
from sandbox_agent.events.session import AssistantMessage, ConversationCompacted, UserMessage
from sandbox_agent.types import JsonObject, Subject

MAX_SECRETS = 1_000
"""Values that are looked for; a folder with more has something else in its secret files."""

CHUNK_CHARS = 96
"""A longer value is looked for in parts of this length: that bounds what a stream has to hold back."""

_MARK = "[masked: "
_THINKING = ("thinking", "redacted_thinking")
_SEALED = {"thinking": "signature", "redacted_thinking": "data", "web_search_result": "encrypted_content"}
"""By type of block, what the API made, and takes back only as it was. Nothing is left unsearched for its name alone:
whoever writes a tool's input or a program's output could call a field so."""


class Secret(NamedTuple):
    """`label` says where the value is from; it is what people and the model see instead."""

    label: str
    value: str


class Redactor:
    """The values of one session. More may be added while it runs."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._known: dict[str, str] = {}
        self._finder = Finder({}, frozenset())
        self.add(secrets)

    def add(self, secrets: Iterable[Secret]) -> int:
        """Look for these too; returns how many were too many. May run beside anything else: it ends with one swap."""
        known, left_out = dict(self._known), 0
        for secret in secrets:
            if secret.value in known or len(secret.value) < MIN_FORM_CHARS:
                continue
            if len(known) >= MAX_SECRETS:
                left_out += 1
                continue
            known[secret.value] = secret.label
        if len(known) == len(self._known):
            return left_out
        found: dict[str, str] = {}
        wraps: set[str] = set()
        written: set[str] = set()
        for part, label in ((part, label) for value, label in known.items() for part in _parts(value)):
            written.update(windows(part.encode("utf-8", "surrogateescape")))
            for form in forms(part):
                found.setdefault(form.text, label)
                if form.wraps:
                    wraps.add(form.text)
        self._known, self._finder = known, Finder(found, wraps, written)
        return left_out

    def text(self, text: str) -> str:
        """The text with a mark in place of each secret; the very same object where there is none."""
        spans = self._finder.spans(text)
        return _marked(text, spans) if spans else text

    def holds(self, value: object) -> bool:
        """Whether there is a secret anywhere in a JSON value."""
        return self._value(value) is not value

    def marks_in(self, value: object) -> str | None:
        """A mark of this session in a JSON value: what was made of something that only shows marks."""
        if isinstance(value, str):
            if _MARK not in value:
                return None
            return next((mark for mark in map(_mark, set(self._known.values())) if mark in value), None)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return next((mark for one in inner if (mark := self.marks_in(one)) is not None), None)

    def event(self, event: Event) -> Event:
        """The event without secrets; digests and what is opaque to us stay. The very same object where there is none.

        A block of thinking with a secret in it goes as a whole: a changed one would not be taken back by the API.
        """
        if not self._known:
            return event
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(event):
            value = getattr(event, field.name)
            if field.name == "content" and isinstance(event, AssistantMessage | UserMessage | ToolResultsMessage):
                clean = self._content(value, is_answer=isinstance(event, AssistantMessage))
            elif field.name == "messages" and isinstance(event, ConversationCompacted):
                clean = self._each(value, self._message)
            else:
                clean = self._value(value)
            if clean is not getattr(event, field.name):
                changed[field.name] = clean
        return dataclasses.replace(event, **changed) if changed else event

    def value(self, value: JsonObject) -> JsonObject:
        """A JSON object without secrets."""
        clean: JsonObject = self._value(value)
        return clean

    def subject(self, subject: Subject) -> Subject:
        """What a call is about, for people."""
        command = subject.command
        return dataclasses.replace(
            subject, summary=self.text(subject.summary), command=self.text(command) if command is not None else None
        )

    def held_from(self, text: str) -> int:
        """Where the end of a text begins that may be the beginning of a secret; its length if there is none such."""
        return self._finder.held_from(text)

    def _message(self, message: JsonObject) -> JsonObject:
        content = message["content"]
        clean = self._content(content, is_answer=message["role"] == "assistant")
        return message if clean is content else {**message, "content": [*clean]}

    def _content(self, blocks: Sequence[JsonObject], *, is_answer: bool) -> Sequence[JsonObject]:
        kept = [b for b in blocks if b.get("type") not in _THINKING or not self._thinks_of_secrets(b)]
        left = blocks if len(kept) == len(blocks) else kept if isinstance(blocks, list) else tuple(kept)
        return self._each(left, self._answer_block if is_answer else self._value)

    def _thinks_of_secrets(self, block: JsonObject) -> bool:
        return self.holds({key: value for key, value in block.items() if key != _SEALED[block["type"]]})

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return self._each(value, self._value)
        return value

    def _each(self, values: Sequence[Any], clean_one: Callable[[Any], Any]) -> Sequence[Any]:
        clean = [clean_one(one) for one in values]
        if all(new is old for new, old in zip(clean, values, strict=True)):
            return values
        return clean if isinstance(values, list) else tuple(clean)

    def _answer_block(self, block: Any) -> Any:
        """A block of the model's answer, or one inside such a block, but for what the API has sealed in it."""
        if not isinstance(block, dict):
            return self._value(block)
        sealed, inner = _SEALED.get(str(block.get("type"))), block.get("content")
        apart: JsonObject = {sealed: block[sealed]} if sealed is not None and sealed in block else {}
        if isinstance(inner, list | tuple) and block.get("type") != "tool_use":
            apart["content"] = self._each(inner, self._answer_block)
        rest = {key: value for key, value in block.items() if key not in apart}
        clean = self._value(rest)
        if clean is rest and all(apart[key] is block[key] for key in apart):
            return block
        return {key: apart.get(key, clean.get(key)) for key in block} if clean.keys() == rest.keys() else clean | apart

    def _object(self, value: JsonObject) -> JsonObject:
        source = value.get("source")
        if value.get("type") in ("image", "document") and isinstance(source, dict) and "data" in source:
            return self._picture(value, source)
        clean = {self.text(key): self._member(key, one) for key, one in value.items()}
        same = len(clean) == len(value) and all(clean.get(key, clean) is one for key, one in value.items())
        return value if same else clean

    def _picture(self, value: JsonObject, source: JsonObject) -> JsonObject:
        """Its bytes cannot be cut without breaking it, so it becomes a mark."""
        data = source["data"]
        found = self._finder.spans(data) if isinstance(data, str) else ()
        if found:
            return {"type": "text", "text": _mark(found[0].label)}
        apart = data if isinstance(data, str) else self._value(data)
        rest = {**value, "source": {key: one for key, one in source.items() if key != "data"}}
        clean = self._object(rest)
        return value if clean is rest and apart is data else {**clean, "source": {**clean["source"], "data": apart}}

    def _member(self, key: str, value: Any) -> Any:
        clean = self._encoded(value) if key == "stdout_base64" and isinstance(value, str) else value
        return self._value(clean)

    def _encoded(self, value: str) -> str:
        """Bytes of a program's output, kept as they came: still bytes that can be decoded afterwards."""
        try:
            text = base64.b64decode(value, validate=True).decode("utf-8", "surrogateescape")
        except (binascii.Error, ValueError):
            return value
        clean = self.text(text)
        return value if clean is text else base64.b64encode(clean.encode("utf-8", "surrogateescape")).decode("ascii")


def _mark(label: str) -> str:
    return f"{_MARK}{label}]"


def _parts(value: str) -> Sequence[str]:
    """The value, or parts of it of which any stretch of twice their length holds one."""
    if len(value) <= CHUNK_CHARS:
        return (value,)
    # The last part is as long as the others: a short rest would be found by chance.
    starts = [*range(0, len(value) - CHUNK_CHARS, CHUNK_CHARS), len(value) - CHUNK_CHARS]
    return [value[start : start + CHUNK_CHARS] for start in starts]


def _marked(text: str, spans: Sequence[Span]) -> str:
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span.start], _mark(span.label), "\n" * text.count("\n", span.start, span.end)]
        at = span.end
    return "".join([*pieces, text[at:]])
