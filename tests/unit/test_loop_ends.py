"""How a run ends before its task is done: at a limit, by an interrupt, by a fault of the sandbox or of the model."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import anyio
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, results, use

from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.loop import run
from sandbox_agent.errors import ModelRejectedError, SandboxStartError
from sandbox_agent.events import LimitReached, RunFinished, ToolStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Limits, ToolResult

DONE = {"text": "done"}


async def test_the_turn_limit_stops_before_the_next_request(tmp_path: Path) -> None:
    """Five turns, five requests, a named limit, and a history that can go on."""
    asked = 0

    def forever(_: ModelRequest) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"tools": [use("Read")]}

    async with make_session(forever, tmp_path, tools=[read_like("Read")], limits=Limits(turns=5)) as session:
        events = await play(session)

    assert asked == 5
    assert [(event.limit, event.value) for event in of(events, LimitReached)] == [("turns", 5)]
    assert finished(events).status == "limit"


async def test_the_wall_clock_stops_a_call_in_progress(tmp_path: Path) -> None:
    """The open call is answered as interrupted, so the conversation stays valid."""

    async def hangs(value: Named, ctx: ToolContext) -> None:
        await anyio.sleep_forever()

    tools = [make_tool("Slow", hangs, timeout_s=None)]
    async with make_session([{"tools": [use("Slow")]}], tmp_path, tools=tools, limits=Limits(wall_s=0.05)) as session:
        events = await play(session)
        [results_block] = session.messages[-1]["content"]

    assert results_block["content"] == INTERRUPTED
    assert [event.limit for event in of(events, LimitReached)] == ["wall_s"]
    assert finished(events).status == "limit"


async def test_an_interrupt_keeps_what_is_done_and_the_session_goes_on(tmp_path: Path) -> None:
    """Finished siblings keep their results, the open call is marked, and the next task works."""
    inside = anyio.Event()

    async def maybe(value: Named, ctx: ToolContext) -> None:
        if value.name == "slow":
            inside.set()
            await anyio.sleep_forever()

    turns = [{"tools": [use("Read", name="quick"), use("Bash", name="slow")]}, {"text": "as you wish"}]
    async with make_session(turns, tmp_path, tools=[read_like("Read"), make_tool("Bash", maybe)]) as session:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await inside.wait()
                session.interrupt()

            group.start_soon(stop)
            events = await play(session)
        assert finished(events).status == "interrupted"
        assert results(events) == [("Read quick", False), (INTERRUPTED, True)]
        assert finished(await play(session, "never mind")).status == "done"


async def test_leaving_the_iteration_stops_the_run(tmp_path: Path) -> None:
    """A front end that goes away leaves nothing running, and the record has its end."""
    async with make_session([{"tools": [use("Read")]}] * 50, tmp_path, tools=[read_like("Read")]) as session:
        async with contextlib.aclosing(run(session, "go")) as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    break
        assert session.scope is None
    assert isinstance(recorded(tmp_path)[-1], RunFinished)


async def test_a_dead_sandbox_ends_the_run(tmp_path: Path) -> None:
    """No further model call, a complete record, and the cause by name."""
    box = FakeSandbox()

    async def touches(value: Named, ctx: ToolContext) -> ToolResult:
        box.die(137, oom_killed=True)
        await ctx.sandbox.exec(["true"])
        return ToolResult("never")

    turns = [{"tools": [use("Bash"), use("Bash")]}, DONE]
    async with make_session(turns, tmp_path, tools=[make_tool("Bash", touches)], sandbox=box) as session:
        events = await play(session)

    end = finished(events)
    assert (end.status, end.turns) == ("sandbox_error", 1)
    assert "137" in (end.error or "")
    assert results(events) == [(INTERRUPTED, True)] * 2
    assert isinstance(recorded(tmp_path)[-1], RunFinished)


async def test_a_sandbox_that_cannot_start_ends_a_request_in_flight(tmp_path: Path) -> None:
    """The run does not wait for the model to find out."""
    asked = anyio.Event()

    async def hangs(_: ModelRequest) -> dict[str, Any]:
        asked.set()
        await anyio.sleep_forever()
        return DONE

    async with make_session(hangs, tmp_path) as session, anyio.create_task_group() as group:

        async def fail() -> None:
            await asked.wait()
            session.fail(SandboxStartError("no space for the container"))

        group.start_soon(fail)
        end = finished(await play(session))
    assert (end.status, end.error) == ("sandbox_error", "no space for the container")


async def test_a_model_fault_is_a_status(tmp_path: Path) -> None:
    """It is not raised, and its text is kept."""

    def refuses(_: ModelRequest) -> dict[str, Any]:
        raise ModelRejectedError("the key was refused")

    async with make_session(refuses, tmp_path) as session:
        end = finished(await play(session))
    assert (end.status, end.error) == ("model_error", "the key was refused")
