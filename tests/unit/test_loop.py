"""The loop: what it does with every kind of answer, limit and fault. Each request is checked as the API would."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, results, use

from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.past import load_past
from sandbox_agent.engine.queue import Priority
from sandbox_agent.errors import ModelRejectedError, SandboxStartError, ToolError
from sandbox_agent.events import LimitReached, RunFinished, ToolFinished, ToolResultsMessage, ToolStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.sandboxes.base import SandboxInfo
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Limits, ToolResult

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


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn", "pause_turn", "something_new"])
async def test_calls_run_only_when_the_answer_ended_for_them(tmp_path: Path, stop_reason: str) -> None:
    """A cut answer's call is answered with an explanation and never run; the next one works."""
    ran: list[str] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        ran.append(value.name)

    turns = [
        {"tools": [use("Write", name="cut")], "stop_reason": stop_reason},
        {"tools": [use("Write", name="whole")]},
        DONE,
    ]
    async with make_session(turns, tmp_path, tools=[make_tool("Write", body)]) as session:
        events = await play(session)

    assert ran == ["whole"]
    assert stop_reason in results(events)[0][0]
    assert finished(events).status == "done"


async def test_cut_answers_do_not_go_on_for_ever(tmp_path: Path) -> None:
    """Three in a row end the run as failed, with a text that names the cause."""
    cut = {"tools": [use("Write")], "stop_reason": "max_tokens"}
    async with make_session([cut] * 9, tmp_path, tools=[make_tool("Write")]) as session:
        end = finished(await play(session))

    assert (end.status, end.turns) == ("failed", 3)
    assert "max_tokens" in (end.error or "")


async def test_cut_text_is_continued(tmp_path: Path) -> None:
    """The model is asked to go on."""
    async with make_session(
        [{"text": "part one", "stop_reason": "max_tokens"}, {"text": "part two"}], tmp_path
    ) as session:
        end = finished(await play(session))

    assert (end.status, end.text, end.turns) == ("done", "part two", 2)


async def test_an_empty_answer_is_asked_about(tmp_path: Path) -> None:
    """Nothing empty enters the conversation."""
    thinking_only = {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}], "stop_reason": "end_turn"}
    async with make_session([thinking_only, {"text": "here"}], tmp_path) as session:
        end = finished(await play(session))
    assert (end.status, end.text) == ("done", "here")


@pytest.mark.parametrize(
    ("stop_reason", "status", "said"),
    [("refusal", "failed", "refused"), ("model_context_window_exceeded", "model_error", "context window")],
)
async def test_a_named_end_is_named(tmp_path: Path, stop_reason: str, status: str, said: str) -> None:
    """Refusal and overflow are not successes."""
    async with make_session([{"text": "I", "stop_reason": stop_reason}], tmp_path) as session:
        end = finished(await play(session))
    assert status == end.status
    assert said in (end.error or "")


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
        session.messages = past.messages
        session.tape.append(ToolResultsMessage(content=past.missing))
        assert finished(await play(session, "go on")).status == "done"

    again = load_past(sessions, session_id, tmp_path)
    assert (again.warning, again.missing) == (None, ())


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


CALL = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"name": "x"}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([CALL, {**CALL, "input": {"name": "other"}}], "the same id"),
        ([{key: value for key, value in CALL.items() if key != "id"}], "id"),
        ([{**CALL, "id": ""}], "id"),
        ([{**CALL, "id": "a\x1b[2J\nb"}], "id"),
        ([{**CALL, "id": "a\ud800"}], "id"),
        ([{**CALL, "name": 7}], "names no tool"),
        ([{key: value for key, value in CALL.items() if key != "name"}], "names no tool"),
        ([{**CALL, "input": ["x"]}], "not an object"),
        ([{"text": "no type"}], "without a type"),
        ([{**CALL, "input": {"name": nested(150)}}], "levels deep"),
        ([{"type": "odd", "value": nested(150)}], "levels deep"),
    ],
)
async def test_an_answer_whose_calls_cannot_be_told_apart_is_refused(
    tmp_path: Path, content: list[dict[str, Any]], why: str
) -> None:
    """Before anything of it runs or is recorded; in plain characters, for it goes to terminals."""
    async with make_session([{"content": content}, DONE], tmp_path, tools=[make_tool("Bash")]) as session:
        events = await play(session)

    end = finished(events)
    assert end.status == "model_error"
    assert why in (end.error or "")
    assert (end.error or "").isascii()
    assert (end.error or "").isprintable()
    assert of(events, ToolStarted) == []
    assert [message["role"] for message in session.messages] == ["user"]


async def test_a_call_with_the_id_of_an_earlier_one_is_refused(tmp_path: Path) -> None:
    """The record and the API know calls by their ids alone, over the whole conversation."""
    turns = [{"content": [CALL]}, {"content": [CALL]}, DONE]
    async with make_session(turns, tmp_path, tools=[make_tool("Bash")]) as session:
        events = await play(session)

    assert finished(events).status == "model_error"
    assert len(of(events, ToolStarted)) == 1


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
