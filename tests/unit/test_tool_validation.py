"""Inputs of tools: what is taken, what is coerced, and what the model is told about the rest."""

from __future__ import annotations

import pytest

from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.edit import TOOL as EDIT
from sandbox_agent.tools.grep import TOOL as GREP
from sandbox_agent.tools.pool import assemble_tool_pool, builtin_tools
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.todo_write import TOOL as TODO_WRITE
from sandbox_agent.tools.validation import parse_input, unknown_tool
from sandbox_agent.types import JsonObject, ToolUse


def parse(tool: Tool, fields: JsonObject) -> object:
    return parse_input(tool, ToolUse("toolu_1", tool.name, fields))


@pytest.mark.parametrize(
    ("tool", "fields", "name", "value"),
    [
        (READ, {"file_path": "a", "offset": "3"}, "offset", 3),
        (READ, {"file_path": "a", "limit": "20"}, "limit", 20),
        (BASH, {"command": "true", "timeout": "5000"}, "timeout", 5000.0),
        (EDIT, {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": "true"}, "replace_all", True),
        (EDIT, {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": "False"}, "replace_all", False),
        (GREP, {"pattern": "x", "-i": "true"}, "ignore_case", True),
        (GREP, {"pattern": "x", "head_limit": "0"}, "head_limit", 0),
        (READ, {"file_path": "a", "offset": None}, "offset", 1),
        (READ, {"file_path": "a", "pages": None}, "pages", None),
    ],
)
def test_strings_that_look_like_the_type_are_coerced(tool: Tool, fields: JsonObject, name: str, value: object) -> None:
    """Numbers and booleans sent as strings, and null for an optional field, are understood."""
    assert getattr(parse(tool, fields), name) == value


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        (BASH, {"command": "true", "dangerouslyDisableSandbox": True}),
        (BASH, {"command": "true", "run_in_background": False}),
        (BASH, {"command": "true", "description": "does nothing"}),
        (READ, {"file_path": "a", "allow_large": True}),
    ],
)
def test_fields_without_meaning_here_are_ignored(tool: Tool, fields: JsonObject) -> None:
    """What models send from habit does not fail a call."""
    assert not isinstance(parse(tool, fields), str)


@pytest.mark.parametrize(
    ("tool", "fields", "parts"),
    [
        (READ, {}, ["Read", "`file_path`", "missing"]),
        (READ, {"filepath": "a"}, ["`filepath`", "not known", "Did you mean file_path", "`file_path` is missing"]),
        (READ, {"file_path": "a", "offset": "ten"}, ["`offset`", "integer", 'the string "ten"']),
        (READ, {"file_path": "a", "offset": -1}, ["`offset`", "greater than or equal to 0", "the number -1"]),
        (READ, {"file_path": "a", "limit": 0}, ["`limit`", "the number 0"]),
        (READ, {"file_path": ["a"]}, ["`file_path`", "string", 'the array ["a"]']),
        (READ, {"file_path": ""}, ["`file_path`", "not empty"]),
        (READ, {"file_path": "a\0b"}, ["`file_path`", "NUL"]),
        (READ, {"file_path": "a" * 5000}, ["`file_path`", "at most 4,095 bytes"]),
        (READ, {"file_path": "\ud800"}, ["surrogate"]),
        (BASH, {"command": "true", "run_in_background": "later"}, ["`run_in_background`", "boolean", '"later"']),
        (BASH, {"command": "true", "timeout": 0}, ["`timeout`", "greater than 0"]),
        (GREP, {"pattern": "x", "output_mode": "lines"}, ["`output_mode`", "'content'", "'count'", '"lines"']),
        (GREP, {"pattern": "x", "ignore_case": True}, ["`ignore_case`", "not known"]),
        (
            TODO_WRITE,
            {"todos": [{"content": "a", "status": "done", "activeForm": "a"}]},
            ["`todos[0].status`", "'completed'", '"done"'],
        ),
    ],
)
def test_a_wrong_input_names_field_expectation_and_value(tool: Tool, fields: JsonObject, parts: list[str]) -> None:
    """The text says which field, what was expected and what came."""
    text = parse(tool, fields)
    assert isinstance(text, str)
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("malformed", "parts"),
    [
        ('{"command": "ls', ["not valid JSON", "cut off", '{"command": "ls', "15 bytes"]),
        ('{"command": }', ["not valid JSON", "13 bytes"]),
        ("[1]", ["not a JSON object", "array [1]"]),
        ("x" * 1000, ["1,000 bytes", "x" * 200 + "..."]),
        ("[" * 100_000, ["not", "100,000 bytes"]),
        ('{"command": ' + "[" * 600 + "]" * 600 + "}", ["nested too deeply", "1,213 bytes"]),
    ],
)
def test_malformed_json_is_shown_with_its_size(malformed: str, parts: list[str]) -> None:
    """An input that is no JSON object says so, with its first characters and its size."""
    text = parse_input(BASH, ToolUse("toolu_1", "Bash", {}, malformed))
    assert isinstance(text, str)
    assert [part for part in parts if part not in text] == []
    assert len(text) < 1000


@pytest.mark.parametrize(("name", "near"), [("read", "Read"), ("Reed", "Read"), ("todowrite", "TodoWrite")])
def test_an_unknown_tool_is_answered_with_near_names(name: str, near: str) -> None:
    """The text names the tools that are most like it, and all there are."""
    text = unknown_tool(name, assemble_tool_pool(builtin_tools()))
    assert f"Did you mean {near}" in text
    assert text.endswith(f"The tools are: {', '.join(tool.name for tool in builtin_tools())}.")


def test_every_schema_forbids_other_fields() -> None:
    """No built-in takes a field it does not name, and every schema says so to the model."""
    schemas = {tool.name: tool.definition()["input_schema"] for tool in builtin_tools()}
    assert {name: schema["additionalProperties"] for name, schema in schemas.items()} == dict.fromkeys(schemas, False)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("AskUserQuestion", {"questions"}),
        ("Bash", {"command", "timeout", "description", "run_in_background"}),
        ("Read", {"file_path", "offset", "limit", "pages"}),
        ("Write", {"file_path", "content"}),
        ("Edit", {"file_path", "old_string", "new_string", "replace_all"}),
        ("EnterPlanMode", set()),
        ("ExitPlanMode", {"plan"}),
        ("Glob", {"pattern", "path"}),
        ("NotebookEdit", {"notebook_path", "cell_id", "new_source", "cell_type", "edit_mode"}),
        ("TaskOutput", {"task_id", "block", "timeout", "offset"}),
        ("TaskStop", {"task_id", "shell_id"}),
        ("TodoWrite", {"todos"}),
        ("WebFetch", {"url", "prompt", "offset"}),
        (
            "Grep",
            {"pattern", "path", "glob", "type", "output_mode", "-A", "-B", "-C", "context", "-n", "-i", "-o"}
            | {"multiline", "head_limit", "offset", "include_ignored"},
        ),
    ],
)
def test_the_schemas_have_the_names_the_field_uses(name: str, fields: set[str]) -> None:
    """A model that knows these tools from elsewhere can call them."""
    [tool] = [tool for tool in builtin_tools() if tool.name == name]
    assert set(tool.definition()["input_schema"]["properties"]) == fields


def test_an_endless_tool_name_is_not_said_back_whole() -> None:
    """The result of a call that no tool caps goes into the conversation as it is."""
    text = unknown_tool("z" * 1_000_000, assemble_tool_pool(builtin_tools()))
    assert len(text) < 500
    assert "..." in text


@pytest.mark.parametrize("fields", [{f"comman{number}": 1 for number in range(5000)}, {"k" * 100_000: 1}])
def test_names_without_end_are_told_in_a_few_lines(fields: JsonObject) -> None:
    """Whoever made them up, a model or a hook, the answer is short."""
    told = parse(BASH, {"command": "true", **fields})
    assert isinstance(told, str)
    assert len(told) < 5000
