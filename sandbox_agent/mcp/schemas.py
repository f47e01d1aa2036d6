"""A tool's input schema, from a server: as the Messages API takes it, and as what checks an input here.

A schema is the work of somebody who is not trusted. It is bounded in size and depth, what it refers to must be in it,
and checking stops after so many steps: a small schema can ask for more work than anybody has time for. Patterns are not
checked at all, for one can keep the engine busy for hours; the server checks them itself.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from jsonschema import validators
from pydantic import RootModel, model_validator

from sandbox_agent.mcp.dialects import VALUES, modern, schemas_in
from sandbox_agent.types import JsonObject, nests_too_deep

MAX_SCHEMA_CHARS = 64 * 1024
MAX_PARTS = 4_000
"""Objects and lists in one schema: whether it is valid takes a third of a millisecond each."""

MAX_STEPS = 50_000
MAX_CHECK_S = 0.5
MAX_UNFOLDED = 100
"""Schemas that the root is put together from: references and branches, in all."""

MAX_PROPERTIES = 200
MAX_DESCRIPTION_CHARS = 1_000
"""Of one field of an input."""

_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")
_LOCAL = re.compile(r"#(?:/(?:\$defs|definitions)/[^/]+)?\Z")
_BRANCHES = ("anyOf", "oneOf", "allOf")
_UNCHECKED = frozenset(
    {"pattern", "patternProperties", "format", "uniqueItems", "unevaluatedProperties", "unevaluatedItems"}
    | {"$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor"}
)
_SHOWN_FAULTS = 5
_SHOWN_CHARS = 200


class UnusableSchemaError(Exception):
    """No tool can be made of it; the text says why."""


class _TooMuchError(Exception):
    """Checking took more steps than it may."""


def adapted(schema: Any) -> JsonObject:
    """The schema as the Messages API takes it: an object at the root, without branches there, descriptions bounded.

    Raises:
        UnusableSchemaError: it cannot be made one.
    """
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise UnusableSchemaError("its input schema is not an object")
    if nests_too_deep(schema):
        raise UnusableSchemaError("its input schema is nested too deeply")
    _check_size(schema)
    newest = modern(schema)
    _check_size(newest)  # with what it refers to by its place
    made = _root(newest, [MAX_UNFOLDED])
    _check_refs(made)
    made.setdefault("properties", {})
    if len(_fields(made)) > MAX_PROPERTIES:
        raise UnusableSchemaError(f"its input schema has over {MAX_PROPERTIES} properties")
    for name in _fields(made):
        if not _PROPERTY.match(name):
            raise UnusableSchemaError(f"its input has a field {name[:80]!r}, which the model API does not take")
    _needed(made)
    plain: JsonObject = _plain(made)
    try:
        jsonschema.Draft202012Validator.check_schema(plain)
    except (jsonschema.SchemaError, RecursionError) as exc:
        said = exc.message if isinstance(exc, jsonschema.SchemaError) else "it refers to itself too deeply"
        raise UnusableSchemaError(f"its input schema is not valid: {said[:_SHOWN_CHARS]}") from exc
    return plain


def _check_size(schema: JsonObject) -> None:
    if len(json.dumps(schema, default=str)) > MAX_SCHEMA_CHARS:
        raise UnusableSchemaError(f"its input schema is over {MAX_SCHEMA_CHARS // 1024} KiB")
    if parts_of(schema) > MAX_PARTS:
        raise UnusableSchemaError(f"its input schema has over {MAX_PARTS:,} parts")


def _root(schema: JsonObject, left: list[int]) -> JsonObject:
    """An object schema that says at its root what the given one says by a reference or by branches. `left` has how many
    more schemas may be taken up: a few references can stand for any number of them."""
    while "$ref" in schema:
        _take_up(left)
        target = _target(schema, schema["$ref"])
        schema = {key: value for key, value in schema.items() if key != "$ref"} | copy.deepcopy(target)
    for key in _BRANCHES:
        branches = schema.pop(key, None)
        if branches is not None:
            _merge(schema, key, branches, left)
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise UnusableSchemaError(f"its input is no object but {str(kind)[:80]}")
    schema["type"] = "object"
    return schema


def _take_up(left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        raise UnusableSchemaError(f"its input schema refers to itself, or to over {MAX_UNFOLDED} others at its root")


def _merge(schema: JsonObject, key: str, branches: Any, left: list[int]) -> None:
    """Fields of all branches; needed is what all of them need (`allOf`: what any does). The server checks the rest."""
    if not isinstance(branches, list) or not all(isinstance(one, dict) for one in branches):
        raise UnusableSchemaError(f"its input schema's {key} is not a list of schemas")
    shared: JsonObject = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    whole: list[JsonObject] = []
    for one in branches:
        _take_up(left)
        whole.append(_root({**one, **shared}, left))
    properties: JsonObject = {}
    for one in whole:
        for name, field in _fields(one).items():
            known = properties.setdefault(name, field)
            if known != field:
                properties[name] = {}  # what the branches do not agree on is free here
    needs = [_needed(one) for one in whole]
    needed = set().union(*needs) if key == "allOf" else set.intersection(*needs) if needs else set()
    schema["properties"] = properties | _fields(schema)
    schema["required"] = sorted(_needed(schema) | needed)
    schema.pop("additionalProperties", None)
    schema.pop("unevaluatedProperties", None)


def _fields(schema: JsonObject) -> JsonObject:
    found = schema.get("properties", {})
    if not isinstance(found, dict):
        raise UnusableSchemaError("its input schema's `properties` is no object")
    return found


def _needed(schema: JsonObject) -> set[str]:
    found = schema.get("required", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise UnusableSchemaError("its input schema's `required` is not a list of names")
    return set(found)


def _target(schema: JsonObject, ref: Any) -> JsonObject:
    found: Any = schema
    if not isinstance(ref, str) or not _LOCAL.match(ref) or ref == "#":
        raise UnusableSchemaError(f"its input schema refers to {str(ref)[:80]!r}")
    for part in ref.removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise UnusableSchemaError(f"its input schema refers to {ref[:80]!r}, which is not in it")
    return found


def _check_refs(schema: JsonObject) -> None:
    for one in schemas_in(schema):
        if "$ref" in one and one["$ref"] != "#":
            _target(schema, one["$ref"])


def _plain(value: Any, *, names: bool = False) -> Any:
    """Without what is not for the model, and with bounded descriptions."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if names:
        return {name: _plain(one) for name, one in value.items()}
    kept = {
        key: one for key, one in value.items() if key not in ("$id", "$schema", "$anchor", "$dynamicRef", "$comment")
    }
    text = kept.get("description")
    if isinstance(text, str) and len(text) > MAX_DESCRIPTION_CHARS:
        kept["description"] = text[:MAX_DESCRIPTION_CHARS] + "..."
    return {
        key: one if key in VALUES else _plain(one, names=key in ("properties", "$defs", "definitions"))
        for key, one in kept.items()
    }


def input_model(schema: JsonObject) -> type[RootModel[dict[str, Any]]]:
    """A model that takes an input that fits a schema from `adapted`, as it is."""
    check = _checker(schema)

    class Input(RootModel[dict[str, Any]]):
        """What a tool of a server is called with."""

        @model_validator(mode="after")
        def _fits(self) -> Input:
            faults = check(self.root)
            if faults:
                raise ValueError("an input that fits its schema: " + "; ".join(faults))
            return self

    return Input


def _checker(schema: JsonObject) -> Callable[[JsonObject], list[str]]:
    """What is wrong with an input, at most five things."""
    steps = [0]
    deadline = [0.0]

    def counted(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def check(*arguments: Any) -> Iterator[Any]:
            steps[0] += 1
            if steps[0] > MAX_STEPS or time.monotonic() > deadline[0]:
                raise _TooMuchError
            yield from keyword(*arguments) or ()

        return check

    base = jsonschema.Draft202012Validator
    checks = {name: counted(keyword) for name, keyword in base.VALIDATORS.items() if name not in _UNCHECKED}
    checker: Any = validators.extend(base, checks)  # type: ignore[no-untyped-call]  # the stubs give it no types
    # Nothing is fetched: the registry is empty, and a reference that leads elsewhere is an error.
    validator = checker(_unpatterned(schema), registry=referencing.Registry())

    def faults(value: JsonObject) -> list[str]:
        steps[0], deadline[0] = 0, time.monotonic() + MAX_CHECK_S
        try:
            return [_worded(error) for error in islice(validator.iter_errors(value), _SHOWN_FAULTS)]
        except (_TooMuchError, RecursionError, ArithmeticError):
            return []  # the server checks it itself; nothing here depends on it
        except referencing.exceptions.Unresolvable as exc:
            return [f"its schema refers to {str(exc.ref)[:_SHOWN_CHARS]!r}, which is not in it"]

    return faults


def _unpatterned(value: Any, *, names: bool = False) -> Any:
    if isinstance(value, list):
        return [_unpatterned(one) for one in value]
    if not isinstance(value, dict):
        return value
    if names:
        return {name: _unpatterned(one) for name, one in value.items()}
    # Which fields are further ones depends on the patterns of names.
    free = {"additionalProperties"} if "patternProperties" in value else set()
    return {
        key: one if key in VALUES else _unpatterned(one, names=key in ("properties", "$defs", "definitions"))
        for key, one in value.items()
        if key not in _UNCHECKED and key not in free
    }


def parts_of(value: Any) -> int:
    """How many objects and lists a JSON value is made of."""
    waiting, found = [value], 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            found += 1
            waiting.extend(one.values() if isinstance(one, dict) else one)
    return found


def _worded(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    text = error.message if len(error.message) <= _SHOWN_CHARS else error.message[:_SHOWN_CHARS] + "..."
    return f"{where}: {text}" if where else text


def fingerprint(value: Mapping[str, Any] | list[Any]) -> str:
    """The same for the same JSON, in whatever order its keys came."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
