"""Which calls of a turn run together, and running them. Knows nothing of permissions or models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
from pydantic import BaseModel

from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import ToolResult, ToolUse

PARALLEL_CALLS = 10


@dataclass(frozen=True, slots=True)
class Call:
    """One tool_use made runnable. Either `tool` and `input` are set, or `refused` says why it cannot run; with neither
    a rule hides the tool, and the gate says so."""

    use: ToolUse
    tool: Tool | None = None
    input: BaseModel | None = None
    refused: ToolResult | None = None

    @property
    def parallel_safe(self) -> bool:
        """Whether it may run beside others; False for a call that cannot run, and when the predicate raises."""
        return self.tool is not None and holds(self.tool.parallel_safe, self.input)


class Begun(Protocol):
    """A call that was begun before its turn. `ended` is set when it runs no more, `fault` is what it raised."""

    @property
    def call(self) -> Call: ...

    @property
    def ended(self) -> anyio.Event: ...

    @property
    def fault(self) -> Exception | None: ...

    def take(self, ctx: ToolContext) -> ToolResult | None:
        """Its result, for the agent of `ctx`; None where it has none (yet)."""
        ...


def holds(predicate: Callable[[BaseModel], bool], value: BaseModel | None) -> bool:
    """A tool predicate, failing closed: anything but True, and any exception, is False."""
    if value is None:
        return False
    try:
        return predicate(value) is True
    except Exception:  # noqa: BLE001 - a predicate is a tool author's code; in doubt the strict answer holds
        return False


def partition(calls: Sequence[Call]) -> list[tuple[Call, ...]]:
    """Maximal runs of parallel-safe calls form one batch each; every other call is a batch of its own, a barrier."""
    batches: list[list[Call]] = []
    open_batch = False
    for call in calls:
        safe = call.parallel_safe
        if safe and open_batch:
            batches[-1].append(call)
        else:
            batches.append([call])
        open_batch = safe
    return [tuple(batch) for batch in batches]


async def run_batch(
    calls: Sequence[Call], run_one: Callable[[Call], Awaitable[None]], *, limit: int = PARALLEL_CALLS
) -> None:
    """Run the calls of one batch, at most `limit` at once, starting in call order.

    `run_one` reports each call's own outcome, so a failing tool cancels nobody. A fault of ours (the sandbox died)
    ends the batch.

    Raises:
        SandboxAgentError: the first such fault, bare rather than in a group.
    """
    if len(calls) == 1:
        await run_one(calls[0])
        return
    slots = anyio.Semaphore(limit)
    faults: list[SandboxAgentError] = []

    async def one(call: Call) -> None:
        try:
            await run_one(call)
        except SandboxAgentError as exc:
            faults.append(exc)
            group.cancel_scope.cancel()
        finally:
            slots.release()

    async with anyio.create_task_group() as group:
        for call in calls:
            await slots.acquire()
            group.start_soon(one, call)
    if faults:
        raise faults[0]
