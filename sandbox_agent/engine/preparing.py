"""What takes tools long to find out about an input, found out beside the event loop before anybody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
from pydantic import BaseModel

from sandbox_agent.engine.scheduler import Call

LOOKS_AT_ONCE = 4
"""An answer can hold hundreds of calls, and everything else of the engine's needs threads, too."""


async def prepare(calls: Sequence[Call]) -> None:
    """Let the tools of these calls look at their inputs, several at once, in threads: the answer of the model goes on,
    and so do other calls. What a tool finds it keeps itself, for its `subject` and predicates."""
    limiter = anyio.CapacityLimiter(LOOKS_AT_ONCE)
    async with anyio.create_task_group() as group:
        for call in calls:
            if call.tool is not None and call.tool.prepare is not None and call.input is not None:
                group.start_soon(_in_thread, call.tool.prepare, call.input, limiter)


async def _in_thread(look: Callable[[Any], object], value: BaseModel, limiter: anyio.CapacityLimiter) -> None:
    await anyio.to_thread.run_sync(_looked, look, value, abandon_on_cancel=True, limiter=limiter)


def _looked(look: Callable[[Any], object], value: BaseModel) -> None:
    try:
        look(value)
    except Exception:  # noqa: BLE001 - a tool author's code; what fails here fails again in `subject`, which denies
        return
