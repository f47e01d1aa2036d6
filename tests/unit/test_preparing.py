"""What a tool must find out about an input is found out in a thread, before anything else asks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import Named, make_session, make_tool, play, results, use

from sandbox_agent.engine.preparing import LOOKS_AT_ONCE, prepare
from sandbox_agent.engine.scheduler import Call
from sandbox_agent.policy.shell import analyse
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.bash import BashInput
from sandbox_agent.types import ToolUse

WAIT_S = 30


def call(tool_name: str, look: object) -> Call:
    return Call(ToolUse("toolu_1", tool_name, {}), make_tool(tool_name, prepare=look), Named())


async def test_the_event_loop_goes_on_meanwhile() -> None:
    """The looks of several calls wait for what the loop does while they look."""
    looking = threading.Barrier(3)
    goes_on = threading.Event()

    def look(value: Named) -> None:
        looking.wait(WAIT_S)
        assert goes_on.wait(WAIT_S)

    async def meanwhile() -> None:
        await anyio.to_thread.run_sync(looking.wait, WAIT_S)
        goes_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(meanwhile)
        await prepare([call("A", look), call("B", look)])
    assert goes_on.is_set()


async def test_many_looks_leave_threads_for_everything_else() -> None:
    """An answer with more calls than there are threads holds nothing up that has nothing to do with it."""
    let_go, looking = threading.Event(), threading.Semaphore(0)

    def look(value: Named) -> None:
        looking.release()
        assert let_go.wait(WAIT_S)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(prepare, [call("A", look)] * 100)
            for _ in range(LOOKS_AT_ONCE):
                await anyio.to_thread.run_sync(looking.acquire)
            assert not looking.acquire(blocking=False)
            let_go.set()


async def test_a_look_that_hangs_does_not_outlive_the_interest_in_it() -> None:
    """A cancelled turn does not wait for it."""
    let_go = threading.Event()
    with anyio.move_on_after(0) as scope:
        await prepare([call("A", lambda value: let_go.wait(WAIT_S))])
    let_go.set()
    assert scope.cancelled_caught


async def test_a_look_that_fails_denies_nothing_by_itself(tmp_path: Path) -> None:
    """What it was for decides: the tool's subject and predicates."""

    def fails(value: Named) -> None:
        raise RuntimeError("no")

    turns: list[dict[str, Any]] = [{"tools": [use("A")]}, {"text": "done"}]
    async with make_session(turns, tmp_path, tools=[make_tool("A", prepare=fails, read_only=True)]) as session:
        assert results(await play(session)) == [("A", False)]


async def test_tools_look_before_anything_is_asked_of_them(tmp_path: Path) -> None:
    """First the look, then whether it may run beside others."""
    order: list[str] = []

    def looks(value: Named) -> None:
        order.append("look")

    def asked(value: Named) -> bool:
        order.append("asked")
        return True

    tool = make_tool("A", prepare=looks, read_only=asked)
    turns: list[dict[str, Any]] = [{"tools": [use("A")]}, {"text": "done"}]
    async with make_session(turns, tmp_path, tools=[tool]) as session:
        await play(session)
    assert order[0] == "look"
    assert "asked" in order


@pytest.mark.parametrize("command", ["ls", "ls 'open", "$(" * 100])
def test_bash_takes_its_command_apart_once(command: str) -> None:
    """In its look; what is asked after that is at hand."""
    assert BASH.prepare is not None
    value = BashInput(command=command)
    BASH.prepare(value)
    parsed = analyse(command)
    assert BASH.read_only(value) is (command == "ls")
    BASH.subject(value, ToolContext(FakeSandbox(), "/home/me/project"))
    assert analyse(command) is parsed
