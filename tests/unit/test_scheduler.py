"""Which calls run together, in which order, and what one fault does to the others."""

from __future__ import annotations

import itertools

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sandbox_agent.engine.scheduler import Call, partition, run_batch
from sandbox_agent.errors import SandboxDiedError
from sandbox_agent.tools.base import Tool, ToolContext, build_tool
from sandbox_agent.types import ToolResult, ToolUse


class Nothing(BaseModel):
    pass


async def _run(_: Nothing, __: ToolContext) -> ToolResult:
    return ToolResult("ok")


def tool(name: str, parallel_safe: object = False) -> Tool:
    return build_tool(name=name, description="d", input_model=Nothing, run=_run, parallel_safe=parallel_safe)  # type: ignore[arg-type]


READ, GREP = tool("Read", True), tool("Grep", True)
EDIT, BASH = tool("Edit"), tool("Bash")


def calls(*tools: Tool) -> list[Call]:
    return [Call(ToolUse(f"id{i}", t.name, {}), t, Nothing()) for i, t in enumerate(tools)]


def names(batches: list[tuple[Call, ...]]) -> list[list[str]]:
    return [[call.use.name for call in batch] for batch in batches]


def test_parallel_calls_form_one_batch_and_others_are_barriers() -> None:
    """[Read, Read, Grep, Edit, Read, Bash] is four steps."""
    assert names(partition(calls(READ, READ, GREP, EDIT, READ, BASH))) == [
        ["Read", "Read", "Grep"],
        ["Edit"],
        ["Read"],
        ["Bash"],
    ]


def test_serial_calls_never_share_a_batch() -> None:
    """Two Edits in a row are two batches."""
    assert names(partition(calls(EDIT, EDIT, BASH))) == [["Edit"], ["Edit"], ["Bash"]]


@given(st.lists(st.sampled_from([READ, GREP, EDIT, BASH]), max_size=30))
def test_partition_keeps_every_call_in_order(tools: list[Tool]) -> None:
    """Batches joined are the calls; only parallel-safe ones share; no two neighbouring batches are both parallel."""
    given_calls = calls(*tools)
    batches = partition(given_calls)

    assert given_calls == [call for batch in batches for call in batch]
    assert all(len(batch) == 1 or all(call.parallel_safe for call in batch) for batch in batches)
    assert not any(a[0].parallel_safe and b[0].parallel_safe for a, b in itertools.pairwise(batches))


@pytest.mark.parametrize("predicate", [lambda _: 1 / 0, lambda _: "yes", lambda _: None, False])
def test_a_doubtful_predicate_means_serial(predicate: object) -> None:
    """A predicate that raises, or says anything but True, is False."""
    assert not calls(tool("Odd", predicate))[0].parallel_safe


def test_a_call_that_cannot_run_is_a_barrier() -> None:
    """An unknown tool or a bad input stands alone."""
    bad = Call(ToolUse("x", "Nosuch", {}), refused=ToolResult("no", is_error=True))
    assert [len(batch) for batch in partition([*calls(READ), bad, *calls(READ)])] == [1, 1, 1]


async def test_ten_run_at_once_and_no_more() -> None:
    """Of 25 calls exactly ten are open together, and they start in call order."""
    open_now = most = 0
    started: list[str] = []
    full = anyio.Event()

    async def one(call: Call) -> None:
        nonlocal open_now, most
        started.append(call.use.id)
        open_now += 1
        most = max(most, open_now)
        if open_now == 10:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        open_now -= 1

    with anyio.fail_after(10):
        await run_batch(calls(*[READ] * 25), one)

    assert most == 10
    assert [f"id{i}" for i in range(25)] == started


async def test_a_dead_sandbox_ends_the_batch_bare() -> None:
    """The fault comes out as itself, not in a group, and the waiting siblings are cancelled."""
    cancelled: list[str] = []

    async def one(call: Call) -> None:
        if call.use.id == "id1":
            raise SandboxDiedError("gone")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(call.use.id)
            raise

    with pytest.raises(SandboxDiedError, match="gone"):
        await run_batch(calls(READ, READ, READ), one)
    assert {"id0", "id2"} >= set(cancelled)
