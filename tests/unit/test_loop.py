"""The loop: calls and their results, queued messages, and a record that is taken up. Each request is checked as the
API would.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, results, use

from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.past import load_past
from sandbox_agent.engine.queue import Priority
from sandbox_agent.errors import ToolError
from sandbox_agent.events import ToolFinished, ToolResultsMessage, ToolStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.sandboxes.base import SandboxInfo
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext

DONE = {"text": "done"}


def last_user_text(request: ModelRequest) -> str:
    return "\n".join(str(block.get("text", block.get("content"))) for block in request.messages[-1]["content"])


async def test_a_task_without_tools_is_one_request(tmp_path: Path) -> None:
    """The answer's text is the result."""
    async with make_session([{"text": "42"}], tmp_path) as session:
        events = await play(session, "what is it?")

    end = finished(events)
    assert (end.status, end.text, end.turns) == ("done", "42", 1)
    assert recorded(tmp_path) == [event for event in events if event.recorded]


async def test_six_calls_run_as_four_steps(tmp_path: Path) -> None:
    """[Read, Read, Grep, Edit, Read, Bash]: the first three are open together, nothing else overlaps."""
    inside = 0
    together = anyio.Event()
    overlaps: list[tuple[str, int]] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        nonlocal inside
        inside += 1
        if value.name.startswith("first"):
            if inside == 3:
                together.set()
            await together.wait()
        overlaps.append((value.name, inside))
        await anyio.lowlevel.checkpoint()
        inside -= 1

    tools = [read_like("Read", body), read_like("Grep", body), make_tool("Edit", body), make_tool("Bash", body)]
    names = ["first1", "first2", "first3", "edit", "read", "bash"]
    kinds = ["Read", "Read", "Grep", "Edit", "Read", "Bash"]
    path = "/workspace/a.txt"
    turn = {"tools": [use(kind, name=name, file_path=path) for kind, name in zip(kinds, names, strict=True)]}
    async with make_session([turn, DONE], tmp_path, tools=tools) as session:
        events = await play(session)

    assert [event.batch for event in of(events, ToolStarted)] == [0, 0, 0, 1, 2, 3]
    assert overlaps[3:] == [("edit", 1), ("read", 1), ("bash", 1)]
    order = [(type(e).__name__, e.tool) for e in events if isinstance(e, ToolStarted | ToolFinished)]
    assert order[6:8] == [("ToolStarted", "Edit"), ("ToolFinished", "Edit")]


async def test_results_go_back_in_call_order(tmp_path: Path) -> None:
    """Whichever finishes first."""
    gates = [anyio.Event() for _ in range(4)]
    gates[3].set()

    async def body(value: Named, ctx: ToolContext) -> None:
        place = int(value.name)
        await gates[place].wait()
        if place:
            gates[place - 1].set()

    turn = {"tools": [use("Read", name=str(i)) for i in range(4)]}
    async with make_session([turn, DONE], tmp_path, tools=[read_like("Read", body)]) as session:
        events = await play(session)

    assert [text for text, _ in results(events)] == ["Read 3", "Read 2", "Read 1", "Read 0"]
    [message] = of(events, ToolResultsMessage)
    assert [block["content"] for block in message.content] == ["Read 0", "Read 1", "Read 2", "Read 3"]


async def test_one_bad_call_spoils_no_other(tmp_path: Path) -> None:
    """A failing, an unknown and an invalid call each get their own error; their siblings run."""

    async def fails(value: Named, ctx: ToolContext) -> None:
        raise ToolError("no such file")

    calls = [use("Read", name="a"), use("Fails"), use("Nosuch"), use("Read", nam="x"), use("Read", name="b")]
    async with make_session(
        [{"tools": calls}, DONE], tmp_path, tools=[read_like("Read"), read_like("Fails", fails)]
    ) as session:
        events = await play(session)

    [message] = of(events, ToolResultsMessage)
    outcomes = [(block["content"], block.get("is_error", False)) for block in message.content]
    assert outcomes[:2] == [("Read a", False), ("no such file", True)]
    assert [error for _, error in outcomes[2:4]] == [True, True]
    assert outcomes[4] == ("Read b", False)
    assert finished(events).status == "done"


async def test_a_tool_over_its_deadline_is_stopped(tmp_path: Path) -> None:
    """The engine's own deadline is an error result, not the end."""

    async def hangs(value: Named, ctx: ToolContext) -> None:
        await anyio.sleep_forever()

    tools = [make_tool("Slow", hangs, timeout_s=0.01)]
    async with make_session([{"tools": [use("Slow")]}, DONE], tmp_path, tools=tools) as session:
        events = await play(session)

    [(text, is_error)] = results(events)
    assert is_error
    assert "0.01 s" in text


async def test_queued_messages_go_in_where_they_belong(tmp_path: Path) -> None:
    """`next` joins the tool results, `later` waits for the end and makes the run go on."""
    seen: list[str] = []

    def model(request: ModelRequest) -> dict[str, Any]:
        seen.append(last_user_text(request))
        if len(seen) == 1:
            session.queue.put("and hurry", Priority.NEXT)
            session.queue.put("one more thing", Priority.LATER)
            return {"tools": [use("Read", name="x")]}
        return DONE

    async with make_session(model, tmp_path, tools=[read_like("Read")]) as session:
        assert finished(await play(session)).status == "done"
    assert seen == ["do it", "Read x\nand hurry", "one more thing"]


async def test_a_cut_record_resumes_with_one_warning(tmp_path: Path) -> None:
    """Two calls, one result on record: the other becomes "interrupted", and once resumed it is whole."""
    sessions, session_id = tmp_path / "sessions", "20260101000000abcdef01"
    folder = sessions / session_id
    folder.mkdir(parents=True)
    turn = {"tools": [use("Read", name="a"), use("Read", name="b")]}
    async with make_session([turn, DONE], folder, tools=[read_like("Read")]) as session:
        await play(session)
    record = folder / "events.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    second = next(i for i, line in enumerate(lines) if b'"tool_finished"' in line and b"Read b" in line)
    record.write_bytes(b"".join(lines[:second]))

    past = load_past(sessions, session_id, tmp_path)
    assert [block["content"] for block in past.messages[-1]["content"]] == ["Read a", INTERRUPTED]
    assert past.warning is not None
    async with make_session([{"text": "going on"}], folder, tools=[read_like("Read")]) as session:
        session.journal.conversations |= past.conversations
        for message in past.missing:
            session.tape.append(message)
        assert finished(await play(session, "go on")).status == "done"

    again = load_past(sessions, session_id, tmp_path)
    assert (again.warning, again.missing) == (None, ())


async def test_an_error_of_the_sandbox_is_the_result_of_its_call_alone(tmp_path: Path) -> None:
    """A command can kill what carries out the verbs, in the middle of any of them."""

    async def body(value: Named, ctx: ToolContext) -> None:
        raise OSError(5, "the runner was killed")

    turn = {"tools": [use("Read", name="x"), use("Grep", name="y")]}
    tools = [read_like("Read", body), read_like("Grep")]
    async with make_session([turn, DONE], tmp_path, tools=tools) as session:
        events = await play(session)

    assert finished(events).status == "done"
    assert sorted(results(events)) == [("Grep y", False), ("Read failed: the runner was killed", True)]


async def test_the_changes_of_a_run_without_tools_wait_for_the_start(tmp_path: Path) -> None:
    """The model may be quicker than the folder is ready; a review of that would have nothing to compare with."""
    happened: list[str] = []

    class Starting(FakeSandbox):
        async def start(self) -> SandboxInfo:
            happened.append("started")
            return await super().start()

        async def close(self) -> None:
            happened.append("closed")
            await super().close()

    async with make_session([DONE], tmp_path, sandbox=Starting()) as session:
        await play(session)
        await session.changes()

    assert happened == ["started", "closed"]
