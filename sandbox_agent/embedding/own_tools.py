"""Tools of the embedding program. They run in its process, outside the container, and are named when a session starts;
their calls pass the same gate as every other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from sandbox_agent.errors import ToolError
from sandbox_agent.tools import base
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import Subject, ToolResult

_log = logging.getLogger(__name__)

OwnRun = Callable[[Any, ToolContext], Awaitable[str | ToolResult]]


def build_tool(
    *,
    name: str,
    description: str,
    input_model: type[BaseModel],
    run: OwnRun,
    read_only: Callable[[Any], bool] | bool = False,
    parallel_safe: Callable[[Any], bool] | bool = False,
    subject: Callable[[Any, ToolContext], Subject] | None = None,
    timeout_s: float | None = 120.0,
    max_result_chars: int = 50_000,
) -> Tool:
    """A tool that the model may call and this program carries out.

    Args:
        name: what the model calls it, and what rules say (`--allow lookup`).
        description: for the model: what it does, when to use it.
        input_model: its fields, with their descriptions. What the model sends is checked against it.
        run: gets the checked input and the session's `ToolContext`; gives the text, or a `ToolResult`. `ToolError` is
            for the model: say what happened and what to try. Any other exception becomes an error result as well, with
            its type and text, and is logged with its traceback.
        read_only: whether a call changes nothing anywhere; then it runs unasked. False asks, or takes a rule.
        parallel_safe: whether it may run beside other calls.
        subject: what a call is about, for people and for rules about paths; None is the input itself.
        timeout_s: after it the call is cancelled and counts as failed. None is no limit.
        max_result_chars: longer results are cut in the middle.

    Raises:
        ValueError: the name is not one the Messages API takes, or the description is empty.
    """

    async def guarded(value: Any, ctx: ToolContext) -> ToolResult:
        try:
            result = await run(value, ctx)
        except (ToolError, TimeoutError):
            raise
        except Exception as exc:
            _log.warning("the tool %s failed", name, exc_info=exc)
            raise ToolError(f"{name} failed: {type(exc).__name__}: {exc}") from exc
        if isinstance(result, str):
            return ToolResult(result)
        if isinstance(result, ToolResult):
            return result
        raise ToolError(f"{name} failed: it gave a {type(result).__name__}, not a text")

    return base.build_tool(
        name=name,
        description=description,
        input_model=input_model,
        run=guarded,
        read_only=read_only,
        parallel_safe=parallel_safe,
        subject=subject or _input_itself,
        timeout_s=timeout_s,
        max_result_chars=max_result_chars,
        source="program",
    )


def _input_itself(value: BaseModel, _: ToolContext) -> Subject:
    return Subject(summary=json.dumps(value.model_dump(mode="json", by_alias=True), ensure_ascii=False))
