"""The JSON Schema of a policy file, for editors; `policies/schema.json` is this text.

It says of a file's shape what loading says. What it cannot say (whether a rule parses, an example holds, a file that
is extended is there) is for `sandbox-agent policy check`.
"""

from __future__ import annotations

import json
from typing import Any

from sandbox_agent.policy.schema import PolicyFile, lockable_keys

SCHEMA_FILE = "schema.json"


def json_schema() -> dict[str, Any]:
    """The schema as JSON data."""
    schema = PolicyFile.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    lock = {"$ref": "#/$defs/Lock"}
    definitions["Lock"] = {"enum": [*lockable_keys()], "description": "A part of the policy, or one setting."}
    schema["properties"]["lock"]["anyOf"] = [lock, {"type": "array", "items": lock}]
    for owner in (schema, definitions["RulesSection"], definitions["HooksSection"], definitions["McpSection"]):
        owner["properties"] = {name: _or_empty(field) for name, field in owner["properties"].items()}
    schema = _without_titles(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sandbox-agent permission policy",
        **schema,
    }


def json_schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """pydantic gives every key a title that is its name again."""
    if isinstance(value, list):
        return [_without_titles(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_titles(one) for key, one in value.items() if not (key == "title" and isinstance(one, str))}


def _or_empty(field: dict[str, Any]) -> dict[str, Any]:
    """A key with nothing behind it (`rules:`) is a key that is not there."""
    kept = {key: field[key] for key in ("description", "default") if key in field}
    value = {key: one for key, one in field.items() if key not in (*kept, "title")}
    branches = value["anyOf"] if [*value] == ["anyOf"] else [value]
    return kept | {"anyOf": [*(one for one in branches if one != {"type": "null"}), {"type": "null"}]}
