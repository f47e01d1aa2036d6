"""What an MCP client can have done with sessions: list, open, fork, compare, apply and close them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.desk import Desk
from sandbox_agent.prompts import prompt
from sandbox_agent.types import JsonObject

MAX_DIFF_CHARS = 100_000

SESSION_ID: JsonObject = {
    "type": "string",
    "description": "The session to use, from SessionCreate or SessionFork. Left out: the first one.",
}

Errand = tuple[JsonObject, Callable[[JsonObject], Awaitable[str]]]


async def carry_out(errand: Errand, given: JsonObject) -> str:
    """What the client is told.

    Raises:
        ToolError, SandboxAgentError: why it was not done.
    """
    definition, do = errand
    schema = definition["input_schema"]
    unknown = sorted(given.keys() - schema["properties"].keys())
    missing = sorted(set(schema.get("required", ())) - given.keys())
    if unknown or missing:
        wrong = f"has no input {unknown[0]!r}" if unknown else f"needs {missing[0]}"
        raise ToolError(f"{definition['name']} {wrong}")
    return await do(given)


def errands(desk: Desk, shown: Callable[[str], str]) -> dict[str, Errand]:
    """What can be done with sessions."""

    async def listed(given: JsonObject) -> str:
        lines = [
            f"{one.id}  {shown(str(one.session.workspace.host))}  {one.calls} calls"
            + ("  (the one that calls without session_id go to)" if one.id == desk.default else "")
            for one in desk.sessions
        ]
        return "\n".join(lines) or "No session is open; the first call opens one."

    async def created(given: JsonObject) -> str:
        made = await desk.create(text_of(given.get("folder"), "folder"))
        return f"session_id: {made.id}"

    async def forked(given: JsonObject) -> str:
        step = given.get("step")
        if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
            raise ToolError("step is a number from 0 on")
        made = await desk.fork(text_of(given.get("session_id"), "session_id"), step)
        return f"session_id: {made.id}"

    async def differed(given: JsonObject) -> str:
        found = await desk.diff(text_of(given.get("session_id"), "session_id"))
        parts = [str(one["diff"]) if one.get("diff") else f"{one['kind']}: {one['path']}" for one in found.changes]
        text = shown("\n".join(part.rstrip("\n") for part in parts))
        if len(text) > MAX_DIFF_CHARS:
            text = f"{text[:MAX_DIFF_CHARS]}\n[... shown are {MAX_DIFF_CHARS:,} of {len(text):,} characters]"
        return text or "Nothing is changed."

    async def applied(given: JsonObject) -> str:
        paths = given.get("paths")
        if paths is not None and not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
            raise ToolError("paths is a list of paths")
        outcome = await desk.apply(text_of(given.get("session_id"), "session_id"), paths)
        lines = [f"applied: {path}" for path in outcome.applied]
        lines += [f"applied in part: {path}" for path in outcome.partial]
        lines += [f"not applied: {path} ({why})" for path, why in {**outcome.withheld, **outcome.conflicts}.items()]
        lines.append("The session has ended with this; the next call opens another one.")
        return shown("\n".join(lines))

    async def ended(given: JsonObject) -> str:
        session_id = text_of(given["session_id"], "session_id") or ""
        await desk.end(session_id)
        return f"Session {session_id} has ended. What it changed is kept: sandbox-agent diff {session_id}"

    session, folders = {"session_id": SESSION_ID}, {"type": "string", "enum": list(desk.folders)}
    found: list[Errand] = [
        (_errand_tool("SessionList"), listed),
        (_errand_tool("SessionCreate", {"folder": {**folders, "description": "Left out: the first one."}}), created),
        (
            _errand_tool(
                "SessionFork",
                {**session, "step": {"type": "integer", "minimum": 0, "description": "Left out: as it is now."}},
            ),
            forked,
        ),
        (_errand_tool("SessionDiff", session), differed),
        (_errand_tool("SessionClose", {"session_id": {"type": "string"}}, ("session_id",)), ended),
    ]
    if desk.allow_apply:
        paths = {"type": "array", "items": {"type": "string"}, "description": "Of SessionDiff. Left out: all."}
        found.append((_errand_tool("SessionApply", {**session, "paths": paths}), applied))
    return {str(definition["name"]): (definition, do) for definition, do in found}


def _errand_tool(name: str, properties: JsonObject | None = None, required: Sequence[str] = ()) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties or {}, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    page = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    return {"name": name, "description": prompt(f"served/{page}"), "input_schema": schema}


def text_of(value: object, name: str) -> str | None:
    """An input that is a text, or was left out.

    Raises:
        ToolError: it is something else.
    """
    if value is not None and not isinstance(value, str):
        raise ToolError(f"{name} is a string")
    return value
