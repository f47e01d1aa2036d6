"""Input schemas of servers: what becomes of them, and that no schema costs more than its bound."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from sandbox_agent.mcp.schemas import UnusableSchemaError, adapted, input_model
from sandbox_agent.testing.api_rules import check_request

DEFS = {"a": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}
DOUBLING = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}}


def _nested(depth: int) -> Any:
    found: Any = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


def _taken(schema: Any) -> None:
    tool = {"name": "mcp__s__t", "description": "d", "input_schema": schema}
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    check_request({"model": "m", "max_tokens": 1, "messages": [message], "tools": [tool]})


@pytest.mark.parametrize(
    ("schema", "fields", "needed"),
    [
        (None, [], []),
        ({}, [], []),
        ({"properties": {"x": {}}}, ["x"], []),
        ({"type": ["object", "null"]}, [], []),
        ({"$ref": "#/$defs/a", "$defs": DEFS}, ["x"], ["x"]),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {}}, "required": ["y"]}], "$defs": DEFS},
            ["x", "y"],
            [],
        ),
        (
            {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {}}, "required": ["y"]}], "$defs": DEFS},
            ["x", "y"],
            ["x", "y"],
        ),
        (
            {"oneOf": [{"required": ["x"]}, {"required": ["x", "y"]}], "properties": {"x": {}, "y": {}}},
            ["x", "y"],
            ["x"],
        ),
        ({"properties": {"me": {"$ref": "#"}}}, ["me"], []),
        (
            {"properties": {"default": {"$ref": "#/properties/enum"}, "enum": {"type": "string"}}},
            ["default", "enum"],
            [],
        ),
        ({"properties": {"x": {"type": "string"}, "y": {"$ref": "#/properties/x"}}}, ["x", "y"], []),
        ({"properties": {"x": {"anyOf": [{"$ref": "#/properties/x"}, {}]}}}, ["x"], []),
        ({"anyOf": [{"properties": {"x": {}}}, {"$ref": "#/anyOf/0"}]}, ["x"], []),
        ({"properties": {"x": {"type": "any", "description": None, "required": True}}}, ["x"], []),
    ],
)
def test_a_schema_becomes_one_that_the_api_takes(schema: Any, fields: list[str], needed: list[str]) -> None:
    """An object at the root, with the fields of every branch; needed is what is needed in any case."""
    made = adapted(schema)

    assert made["type"] == "object"
    assert fields == sorted(made["properties"])
    assert needed == made.get("required", [])
    _taken(made)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("a string", "not an object"),
        ({"type": "array"}, "no object but array"),
        ({"$ref": "#"}, "refers to '#'"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
        ({"$ref": "#/$defs/d0", "$defs": DOUBLING}, "over 100 others"),
        ({"$ref": "https://evil.example/schema"}, "refers to 'https://evil.example/schema'"),
        ({"properties": {"x": {"$ref": "#/$defs/none"}}}, "which is not in it"),
        ({"properties": {"x": {"$ref": "#/properties/none"}}}, "which is not in it"),
        ({"$ref": "#/anyOf/0", "anyOf": [{"$ref": "#/anyOf/0"}]}, "refers to itself"),
        ({"properties": {f"p{n}": {"$ref": f"#/properties/p{n}"} for n in range(101)}}, "refers to"),
        (
            {
                "properties": {"a": {"enum": ["x" * 2_000]}}
                | {f"p{n}": {"$ref": f"#/{'/' * n}properties/a"} for n in range(9)}
            },
            "which is not in it",
        ),
        (
            {"properties": {f"p{n}": {"a": {"enum": ["x" * 600]}, "$ref": f"#/properties/p{n}/a"} for n in range(90)}},
            "64 KiB",
        ),
        ({"$ref": {"a": 1}}, "refers to"),
        ({"properties": {"a b": {}}}, "'a b'"),
        ({"properties": {"": {}}}, "''"),
        ({"properties": {"x" * 65: {}}}, "does not take"),
        ({"properties": {"x\n": {}}}, "does not take"),
        ({"properties": {"\u0430": {}}}, "does not take"),
        ({"properties": [1]}, "`properties` is no object"),
        ({"anyOf": [{"properties": [1]}]}, "`properties` is no object"),
        ({"anyOf": [{"required": [{}]}]}, "`required`"),
        ({"anyOf": [{}], "required": 5}, "`required`"),
        ({"anyOf": {}}, "anyOf"),
        ({"required": "x"}, "`required`"),
        ({"properties": {"x": {"type": "wrong"}}}, "not valid"),
        ({"properties": {f"p{n}": {} for n in range(201)}}, "over 200"),
        ({"description": "x" * 70_000}, "64 KiB"),
        ({"properties": {"a": {"anyOf": [{}] * 15_000}}}, "over 4,000 parts"),
        (_nested(100), "nested too deeply"),
    ],
)
def test_what_cannot_be_made_one_is_said(schema: Any, said: str) -> None:
    """The reason in a line, within a moment, whatever the schema would unfold to."""
    began = time.monotonic()

    with pytest.raises(UnusableSchemaError) as told:
        adapted(schema)

    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("field", "fits", "fits_not"),
    [
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, ["a", 1, None], [1]),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", "b"]),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0.1, 0),
        ({"type": "number", "maximum": 0, "exclusiveMaximum": False}, 0, 1),
        ({"$ref": "#/properties/other/items"}, 1, "a"),
        ({"enum": [{"$ref": "#/properties/x", "required": True}]}, {"$ref": "#/properties/x", "required": True}, 1),
    ],
)
def test_what_older_drafts_say_is_said_in_the_newest(field: Any, fits: Any, fits_not: Any) -> None:
    """It means the same."""
    made = adapted({"properties": {"x": field, "other": {"items": {"type": "integer"}}}})

    _taken(made)
    input_model(made).model_validate({"x": fits})
    with pytest.raises(ValidationError):
        input_model(made).model_validate({"x": fits_not})


def test_long_descriptions_are_cut_and_values_are_left_alone() -> None:
    """What is a value in a schema is no part of it, though it has the names of such."""
    made = adapted({"properties": {"x": {"description": "d" * 2_000, "enum": [{"pattern": "a", "$id": "b"}]}}})

    assert len(made["properties"]["x"]["description"]) < 1_100
    assert made["properties"]["x"]["enum"] == [{"pattern": "a", "$id": "b"}]
    input_model(made).model_validate({"x": {"pattern": "a", "$id": "b"}})


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["object", "x", "#", "#/$defs/a", "#/properties/a", "string"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "$ref", "$defs", "a", "anyOf", "allOf", "oneOf", "items", "enum"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(schema=_JSON, value=st.dictionaries(st.sampled_from(["a", "x", "type"]), _JSON, max_size=3))
def test_any_schema_is_taken_or_refused_by_name(schema: Any, value: dict[str, Any]) -> None:
    """Nothing but the one error comes out; what is taken, the API takes, and inputs can be compared with it."""
    try:
        made = adapted(schema)
    except UnusableSchemaError:
        return
    _taken(made)
    try:
        input_model(made).model_validate(value)
    except ValidationError:
        return


def test_an_input_is_compared_with_the_schema() -> None:
    """Type, need, further fields: in the words of the place."""
    model = input_model(
        adapted({"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False})
    )

    assert model.model_validate({"n": 1}).root == {"n": 1}
    for value, said in (
        ({"n": "x"}, "n: 'x' is not of type"),
        ({}, "'n' is a required"),
        ({"n": 1, "m": 2}, "'m' was"),
    ):
        with pytest.raises(ValidationError, match=said):
            model.model_validate(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"s": {"pattern": "(a+)+$"}}}, {"s": "a" * 60 + "!"}),
        ({"patternProperties": {"(a+)+$": {"type": "integer"}}}, {"a" * 60 + "!": 1}),
        ({"patternProperties": {"^x_": {}}, "additionalProperties": False}, {"x_1": 1}),
        ({"properties": {"l": {"uniqueItems": True}}}, {"l": [{"n": n} for n in range(20_000)]}),
        ({"properties": {"n": {"$ref": "#/$defs/d0"}}, "$defs": DOUBLING}, {"n": 1}),
        ({"properties": {"s": {"anyOf": [{"type": "integer"}] * 3_000}}}, {"s": "x" * 1_000_000}),
        ({"properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"n": 1}),
        ({"properties": {"n": {"multipleOf": 0.5}}}, {"n": 10**400}),
    ],
)
def test_comparing_takes_a_moment_at_most(schema: Any, value: Any) -> None:
    """Patterns are the server's to check; anything that takes too many steps is given up, and let pass."""
    model = input_model(adapted(schema))
    began = time.monotonic()

    with contextlib.suppress(ValidationError):  # an answer in time is an answer
        model.model_validate(value)

    assert time.monotonic() - began < 5
