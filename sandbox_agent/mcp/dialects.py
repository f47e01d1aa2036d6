"""Schemas of older drafts, and with references to anywhere in themselves, said as the newest draft says it.

Many servers are made with programs that write draft 7, and refer to a field for the second time that they have said
once. A tool is not to be lost for that.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from sandbox_agent.types import JsonObject

MAX_POINTERS = 100
"""Places of a schema that are referred to, but for definitions."""

VALUES = ("const", "enum", "default", "examples")
NAMED = ("properties", "$defs", "definitions", "patternProperties")
_DEFINED = re.compile(r"#(?:/(?:\$defs|definitions)/[^/]+)?\Z")


def modern(schema: JsonObject) -> JsonObject:
    """The schema in the words of 2020-12, as far as they differ; what makes no sense in any draft stays as it is."""
    made: JsonObject = _said(schema)
    return _with_definitions(made)


def _said(value: Any, *, names: bool = False) -> Any:
    if isinstance(value, list):
        return [_said(one) for one in value]
    if not isinstance(value, dict):
        return value
    if names:
        return {name: _said(one) for name, one in value.items()}
    kept = {key: one if key in VALUES else _said(one, names=key in NAMED) for key, one in value.items()}
    _tuples(kept)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(kept.get(exclusive), bool) and kept.pop(exclusive) and limit in kept:
            kept[exclusive] = kept.pop(limit)
    if isinstance(kept.get("required"), bool):  # of draft 3, where a field says so of itself
        del kept["required"]
    if kept.get("type") == "any":
        del kept["type"]
    return {key: one for key, one in kept.items() if key not in ("description", "title") or isinstance(one, str)}


def _tuples(schema: JsonObject) -> None:
    if not isinstance(schema.get("items"), list):
        return
    schema["prefixItems"] = schema.pop("items")
    rest = schema.pop("additionalItems", None)
    if rest is not None:
        schema["items"] = rest


def _with_definitions(schema: JsonObject) -> JsonObject:
    """References to a place that is no definition become ones to a copy of it that is one."""
    wanted: dict[str, str] = {}
    _point(schema, wanted)
    if not wanted or not isinstance(schema.get("$defs", {}), dict):
        return schema
    copies: JsonObject = {}
    for pointer, name in wanted.items():
        found = _at(schema, pointer)
        if found is not None:  # else the reference leads nowhere, which is found out later
            copies[name] = copy.deepcopy(found)
    return {**schema, "$defs": {**schema.get("$defs", {}), **copies}}


def _point(schema: JsonObject, wanted: dict[str, str]) -> None:
    """Change the references in place, and note what the new ones are to lead to."""
    for one in schemas_in(schema):
        ref = one.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/") or _DEFINED.match(ref):
            continue
        if ref in wanted or len(wanted) < MAX_POINTERS:
            one["$ref"] = f"#/$defs/{wanted.setdefault(ref, f'at_{len(wanted)}')}"


def schemas_in(value: Any, *, names: bool = False) -> Iterator[JsonObject]:
    """A schema and every one in it; not what only looks like one, as a value may."""
    if isinstance(value, list):
        for one in value:
            yield from schemas_in(one)
    elif isinstance(value, dict):
        if not names:
            yield value
        for key, one in value.items():
            if names or key not in VALUES:
                yield from schemas_in(one, names=not names and key in NAMED)


def _at(schema: JsonObject, pointer: str) -> Any:
    found: Any = schema
    for part in pointer.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict):
            found = found.get(key)
        else:
            return None
    return found if isinstance(found, dict) else None
