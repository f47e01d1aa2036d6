"""What an MCP server asks of the person, as questions; and the answers as the server asked for them.

The server's form is not trusted: it is small, each question says which server it is of, and what is answered is checked
here against what was asked, so that nothing goes out that nobody has seen asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sandbox_agent.tools.questions import Ask, Choice, Question, Reply
from sandbox_agent.types import JsonObject

MAX_FIELDS = 20
AT_ONCE = 4
"""Questions that are put together."""

MAX_CHOICES = 100
_MESSAGE_CHARS = 700
_ABOUT_CHARS = 250
_DEFAULT_CHARS = 200
_LABEL_CHARS = 200
_HEADER_CHARS = 12

Value = str | int | float | bool | list[str]


class _Option(NamedTuple):
    """A choice: what is shown, and what the server gets for it."""

    label: str
    value: Any


async def elicited(server: str, message: str, schema: Mapping[str, Any], ask: Ask, agent_id: str) -> JsonObject | None:
    """The person's answers to what a server asks.

    Args:
        server: its name.
        message: its words.
        schema: of the answers.
        ask: whoever answers.
        agent_id: of the agent whose call it is.

    Returns:
        None where there are none, one that is needed is missing or is not what was asked for, or it asks for too much.
        What has a default may be missing.
    """
    fields = _fields(schema)
    if not 0 < len(fields) <= MAX_FIELDS or any(len(_options(field)) > MAX_CHOICES for field in fields.values()):
        return None
    given: JsonObject = {}
    names = list(fields)
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        replies = await ask([_question(server, message, name, fields[name]) for name in some], agent_id=agent_id)
        if replies is None:
            return None
        for name, reply in zip(some, replies, strict=False):
            value = _value(fields[name], reply)
            if value is not None:
                given[name] = value
    needed = schema.get("required")
    left_out = set(needed if isinstance(needed, list) else ()) - given.keys()
    # What has a default is filled in by the connection.
    return given if all("default" in fields.get(name, {}) for name in left_out) else None


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = schema.get("properties")
    return {name: field for name, field in found.items() if isinstance(field, dict)} if isinstance(found, dict) else {}


def _options(field: Mapping[str, Any]) -> list[_Option]:
    """The choices of a field, in all the ways that the protocol has to say them."""
    if field.get("type") == "boolean":
        return [_Option("yes", True), _Option("no", False)]
    items = field.get("items")
    source = items if field.get("type") == "array" and isinstance(items, dict) else field
    titled = source.get("oneOf", source.get("anyOf"))
    if isinstance(titled, list):
        return [
            _Option(str(one.get("title", one["const"])), one["const"])
            for one in titled
            if isinstance(one, dict) and isinstance(one.get("const"), str)
        ]
    values = source.get("enum")
    values = [one for one in values if isinstance(one, str)] if isinstance(values, list) else []
    names = source.get("enumNames")
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return [_Option(str(label), value) for label, value in zip(labels, values, strict=True)]


def _question(server: str, message: str, name: str, field: Mapping[str, Any]) -> Question:
    about = f"{field.get('title') or name}: {field.get('description') or ''}".strip(" :")
    text = f"The MCP server {server} asks: {_short(message, _MESSAGE_CHARS)}\n{_short(about, _ABOUT_CHARS)}"
    if "default" in field:
        text += f" (without an answer: {_short(str(field['default']), _DEFAULT_CHARS)})"
    choices = tuple(Choice(_label(option), "") for option in _options(field))
    several = field.get("type") == "array"
    return Question(text, name[:_HEADER_CHARS], choices, several, asker=f"the MCP server {server}")


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} [... {len(text):,} characters]"


def _label(option: _Option) -> str:
    return option.label[:_LABEL_CHARS]


def _value(field: Mapping[str, Any], reply: Reply) -> Value | None:
    """What was answered, as the kind that the server asked for; None where it is not one."""
    kind, options = field.get("type"), _options(field)
    said = [reply.text] if reply.text is not None else list(reply.labels)
    if not said:
        return None
    if options:
        by_name = {str(option.value).lower(): option.value for option in options}
        by_name |= {_label(option).lower(): option.value for option in options}
        chosen = [by_name[one.strip().lower()] for one in said if one.strip().lower() in by_name]
        if len(chosen) < len(said):
            return None
        return _several(field, chosen) if kind == "array" else chosen[0]
    if kind == "array":
        return None
    return _number(kind, field, said[0]) if kind in ("number", "integer") else _text(field, said[0])


def _several(field: Mapping[str, Any], chosen: Sequence[str]) -> list[str] | None:
    return list(chosen) if _within(field, "minItems", "maxItems", len(chosen)) else None


def _text(field: Mapping[str, Any], said: str) -> str | None:
    return said if _within(field, "minLength", "maxLength", len(said)) else None


def _number(kind: str, field: Mapping[str, Any], said: str) -> int | float | None:
    try:
        value = int(said) if kind == "integer" else float(said)
    except ValueError:
        return None
    return value if math.isfinite(value) and _within(field, "minimum", "maximum", value) else None


def _within(field: Mapping[str, Any], least: str, most: str, size: float) -> bool:
    return _bound(field.get(least), -math.inf) <= size <= _bound(field.get(most), math.inf)


def _bound(value: Any, otherwise: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
