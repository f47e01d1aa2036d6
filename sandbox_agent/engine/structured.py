"""An answer of a form that the caller gave as a JSON Schema: the model gives it through a tool, and is sent back a few
times when it would end without.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from pydantic import RootModel

from sandbox_agent.engine.hook_answers import HookAnswer
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.errors import ConfigError, ToolError
from sandbox_agent.mcp.schemas import UnusableSchemaError, adapted
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, build_tool
from sandbox_agent.types import JsonObject, Subject, ToolResult, Verdict

NAME = "StructuredOutput"
MAX_REMINDERS = 4
"""So often is a model told that its answer is still missing; after that the task ends without."""

_SHOWN_FAULTS = 5
_SHOWN_CHARS = 300


class _Given(RootModel[dict[str, Any]]):
    """What the model gives as its answer; checked against the caller's schema when it runs."""


class StructuredAnswer:
    """`tool` and `hook` go to the session; `value` is the answer of the present task, None so far."""

    def __init__(self, schema: JsonObject) -> None:
        """Nothing happens yet.

        Raises:
            ConfigError: no input of a tool can have this schema.
        """
        try:
            shown = adapted(schema)
            jsonschema.Draft202012Validator.check_schema(schema)
        except (UnusableSchemaError, jsonschema.SchemaError) as exc:
            said = exc.message if isinstance(exc, jsonschema.SchemaError) else str(exc)
            raise ConfigError(f"the JSON Schema of the answer cannot be used: {said}") from exc
        self._checker = jsonschema.Draft202012Validator(schema)
        self.value: JsonObject | None = None
        self._reminded = 0
        self.tool = build_tool(
            name=NAME,
            description=prompt("tools/structured_output"),
            input_model=_Given,
            run=self._take,
            read_only=True,
            subject=lambda value, ctx: Subject(summary=json.dumps(value.root, ensure_ascii=False)[:_SHOWN_CHARS]),
            input_schema=shown,
        )
        self.hook = ProgramHook("structured-output", HookEvent.STOP, self._may_stop)

    def begin(self) -> None:
        """A new task begins, with no answer yet."""
        self.value, self._reminded = None, 0

    @property
    def missing(self) -> str:
        """What to say of a task that ended without."""
        return f"the answer never fitted its JSON Schema, or was not given, after {self._reminded} reminders"

    async def _take(self, value: _Given, ctx: ToolContext) -> ToolResult:
        if ctx.agent_id != "main":
            raise ToolError("Only the first agent gives the answer of the task; say yours as text.")
        faults = []
        for error in self._checker.iter_errors(value.root):
            where = ".".join(str(part) for part in error.absolute_path)
            faults.append(f"{where or 'the whole'}: {error.message[:_SHOWN_CHARS]}")
        if faults:
            raise ToolError("This does not fit: " + "; ".join(faults[:_SHOWN_FAULTS]) + ". Give it once more.")
        self.value = value.root
        return ToolResult("The answer was taken. End now; what you say is for people only.")

    async def _may_stop(self, told: JsonObject) -> HookAnswer | None:
        if self.value is not None or self._reminded >= MAX_REMINDERS:
            return None
        self._reminded += 1
        return HookAnswer(Verdict.DENY, f"the answer is missing: call {NAME} with it")
