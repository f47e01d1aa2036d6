"""From a tool_use block to a parsed input, or to a text that tells the model exactly what was wrong with it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.pool import ToolPool
from sandbox_agent.types import JsonObject, ToolUse, nests_too_deep

IGNORED_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "AskUserQuestion": frozenset({"answers", "metadata"}),
        "Bash": frozenset({"dangerouslyDisableSandbox"}),
        "ExitPlanMode": frozenset({"allowedPrompts"}),
        "Read": frozenset({"allow_large"}),
        "Task": frozenset({"effort", "isolation", "mode", "name", "team_name"}),
    }
)
"""Fields that models send from habit and that mean nothing here: the container is always there, files are paged, a
person's answers are not the model's to give, and a plan grants nothing."""

_FALSE = (False, "false", "False", None)
_FIRST_CHARS = 200
_SHOWN_VALUE_CHARS = 80
_SHOWN_NAME_CHARS = 200
_SHOWN_PROBLEMS = 20


def parse_input(tool: Tool, use: ToolUse) -> BaseModel | str:
    """The input as the tool's model, or the text of an error result.

    Number-like and bool-like strings are coerced, and an optional field that is null counts as left out.
    """
    if use.malformed is not None:
        return _malformed(tool, use.malformed)
    fields = _without_ignored(tool, use.input)
    if not _encodable(fields):
        return f"Invalid input for {tool.name}; nothing was done. A text in it holds half of a surrogate pair."
    try:
        return tool.input_model.model_validate(fields)
    except ValidationError as exc:
        known = _field_names(tool)
        errors = exc.errors(include_url=False)
        problems = [_problem(error, known) for error in errors[:_SHOWN_PROBLEMS]]
        if len(errors) > _SHOWN_PROBLEMS:
            problems.append(f"and {len(errors) - _SHOWN_PROBLEMS:,} more")
    return f"Invalid input for {tool.name}; nothing was done.\n" + "\n".join(f"- {problem}" for problem in problems)


def unknown_tool(name: str, pool: ToolPool) -> str:
    """The text for a call of a tool that is not in the pool."""
    if name in pool.absent:
        return f"{name} cannot be used here: {pool.absent[name]}"
    shown = name if len(name) <= _SHOWN_VALUE_CHARS else name[:_SHOWN_VALUE_CHARS] + "..."
    near = near_names(shown, pool.names())
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no tool {shown!r}.{hint} The tools are: {', '.join(pool.names()) or '(none)'}."


def near_names(name: str, names: Iterable[str], *, at_most: int = 3) -> list[str]:
    """The names most like `name`, best first; upper and lower case, `_` and `-` make no difference."""
    spelled: dict[str, str] = {}
    for candidate in names:
        spelled.setdefault(_plain(candidate), candidate)
    found = difflib.get_close_matches(_plain(name), spelled, n=at_most, cutoff=0.6)
    return [spelled[key] for key in found]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _without_ignored(tool: Tool, fields: JsonObject) -> JsonObject:
    if tool.source != "builtin":
        return fields
    ignored = IGNORED_FIELDS.get(tool.name, frozenset())
    known = _field_names(tool)
    kept = {key: value for key, value in fields.items() if key not in ignored and not (value is None and key in known)}
    if "run_in_background" not in known and kept.get("run_in_background", True) in _FALSE:
        del kept["run_in_background"]
    return kept


def _encodable(fields: JsonObject) -> bool:
    """Whether every text can be written as UTF-8: no file, no argument and no record can hold half a surrogate pair."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _field_names(tool: Tool) -> list[str]:
    schema = tool.input_schema or {}
    return list(schema.get("properties", {}))


def _problem(error: Any, known: list[str]) -> str:
    where = _where(error["loc"])
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return f"field {where} is missing."
    if kind == "extra_forbidden":
        near = near_names(str(error["loc"][-1])[:_SHOWN_NAME_CHARS], known) if len(error["loc"]) == 1 else []
        hint = f" Did you mean {' or '.join(near)}?" if near else f" The fields are: {', '.join(known) or '(none)'}."
        return f"field {where} is not known.{hint}"
    expected = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return f"field {where}: expected {expected}; got {_shown(value)}."


def _where(loc: tuple[int | str, ...]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    path = path.removeprefix(".")
    if len(path) > _SHOWN_NAME_CHARS:
        path = path[:_SHOWN_NAME_CHARS] + "..."
    return f"`{path}`" if path else "(the whole input)"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _SHOWN_VALUE_CHARS:
        text = text[:_SHOWN_VALUE_CHARS] + "..."
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    kind = names.get(type(value), "null")
    return "null" if value is None else f"the {kind} {text}"


def _malformed(tool: Tool, text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    try:
        value = json.loads(text)
    except ValueError as exc:
        why = f"is not valid JSON ({exc})"
        if isinstance(exc, json.JSONDecodeError) and (exc.pos >= len(text.rstrip()) or "Unterminated" in exc.msg):
            why += "; it looks cut off"
    except RecursionError:
        why = "is not usable JSON (nested too deeply)"
    else:
        deep = nests_too_deep(value)
        why = "is not usable JSON (nested too deeply)" if deep else f"is not a JSON object but {_shown(value)}"
    first = text[:_FIRST_CHARS] + ("..." if len(text) > _FIRST_CHARS else "")
    return (
        f"Invalid input for {tool.name}; nothing was done. The input ({size:,} bytes) {why}. It begins with: {first}\n"
        "Send the call again with one complete JSON object; split very long content over several calls."
    )
