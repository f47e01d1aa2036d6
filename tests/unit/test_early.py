"""Calls at the head of an answer: which of them run while it streams, and what becomes of them when it fails."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, recorded, results
from hook_rig import POST, PRE, hook, hooked, saying

from sandbox_agent.engine.early import Head
from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.past import load_past
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ModelOverloadedError
from sandbox_agent.events import (
    AssistantMessage,
    CallDiscarded,
    Event,
    ModelSwitched,
    PermissionDecided,
    RequestStarted,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.stream_json import StreamJson
from sandbox_agent.models.base import Answer, BlockDone, ModelRequest, Retrying
from sandbox_agent.policy.load import load_policy
from sandbox_agent.sandboxes.base import PathInfo
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tape import TapeWriter
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import JsonObject, Usage

TEXT: JsonObject = {"type": "text", "text": "so"}
DONE = Answer((TEXT,), "end_turn", Usage(), "m")


def call(call_id: str, tool: str = "Read", **given: Any) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": given or {"name": call_id}}


@dataclass
class Stream:
    """A model whose first answer is streamed by hand: blocks, then what `then` says; later answers end the run."""

    blocks: Sequence[JsonObject]
    then: Callable[[], Awaitable[Answer | Retrying | None]]
    answer_after_retry: Answer = DONE
    name: str = "by hand"
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        if len(self.requests) > 1:
            yield DONE
            return
        for index, block in enumerate(self.blocks):
            yield BlockDone(index, block)
        last = await self.then()
        if isinstance(last, Retrying):
            yield last
            for index, block in enumerate(self.answer_after_retry.content):
                yield BlockDone(index, block)
            yield self.answer_after_retry
        elif last is not None:
            yield last

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        return None

    async def aclose(self) -> None:
        pass


class Reads:
    """A body of tools that keeps what ran, and lets a test wait until so many have."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.at_once = self.most_at_once = 0
        self.gate: anyio.Event | None = None
        self._came = anyio.Event()

    async def __call__(self, value: Named, ctx: ToolContext) -> None:
        self.ran.append(value.name)
        self._came.set()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        ctx.known_files[f"/workspace/{value.name}"] = "sha"
        try:
            if self.gate is not None:
                await self.gate.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.at_once -= 1

    async def until(self, *names: str) -> None:
        with anyio.fail_after(5):
            while self.ran != list(names):
                await self._came.wait()
                self._came = anyio.Event()


def answer(*blocks: JsonObject, stop_reason: str = "tool_use") -> Answer:
    return Answer(blocks, stop_reason, Usage(), "m")


@asynccontextmanager
async def session_of(model: Stream, folder: Path, reads: Reads, **options: Any) -> AsyncIterator[Session]:
    tools = [read_like("Read", reads), read_like("Grep", reads), make_tool("Write", reads), read_like("Look", reads)]
    async with make_session([{"text": "unused"}], folder, tools=tools, **options) as session:
        session.model = model
        yield session


def kinds(events: Sequence[Event], *wanted: type[Event]) -> list[tuple[str, str]]:
    """Name and call of the events of these kinds, in their order."""
    return [(type(event).__name__, getattr(event, "call_id", "")) for event in events if isinstance(event, wanted)]


async def test_reads_at_the_head_run_while_the_answer_streams(tmp_path: Path) -> None:
    """Judged, started and ended before the answer is whole; its results are the answer's, in order, once."""
    reads = Reads()
    content = (TEXT, call("a"), call("b", "Grep"))

    async def wait() -> Answer:
        await reads.until("a", "b")
        return answer(*content)

    model = Stream(content, wait)
    async with session_of(model, tmp_path, reads) as session:
        events = await play(session)
        assert session.ctx.known_files.keys() == {"/workspace/a", "/workspace/b"}

    assert finished(events).status == "done"
    assert reads.ran == ["a", "b"]
    order = kinds(events, PermissionDecided, ToolStarted, AssistantMessage)
    assert sorted(order[:2] + order[2:4]) == sorted(order[:4])
    assert [name for name, _ in order[4:]] == ["AssistantMessage", "AssistantMessage"]
    assert [(event.early, event.batch) for event in of(events, ToolStarted)] == [(True, 0)] * 2
    [message] = of(events, ToolResultsMessage)
    assert [block["tool_use_id"] for block in message.content] == ["a", "b"]
    assert of(events, CallDiscarded) == []
    assert len(of(events, ToolFinished)) == 2


async def test_only_the_head_begins(tmp_path: Path) -> None:
    """What stands behind a write waits for it, reads too; and what is no Read, Grep or Glob ends the head."""
    reads = Reads()
    content = (call("a"), call("w", "Write"), call("b"), call("l", "Look"))

    async def wait() -> Answer:
        await reads.until("a")
        return answer(*content)

    async with session_of(Stream(content, wait), tmp_path, reads) as session:
        events = await play(session)

    assert reads.ran == ["a", "w", "b", "l"]
    assert [event.early for event in of(events, ToolStarted)] == [True, False, False, False]
    assert [event.batch for event in of(events, ToolStarted)] == [0, 1, 2, 2]


async def test_a_read_that_would_be_asked_about_waits_for_its_turn(tmp_path: Path) -> None:
    """And so does all that stands behind it; nothing is decided, told or asked early."""
    reads = Reads()
    content = (call("a"), call("q", "Grep"), call("b"))

    async def wait() -> Answer:
        await reads.until("a")
        return answer(*content)

    policy = load_policy(None, allow=["Read"], ask=["Grep"])
    async with session_of(Stream(content, wait), tmp_path, reads, policy=policy) as session:
        events = await play(session)

    assert reads.ran == ["a", "b"]
    decided = [(event.call_id, event.verdict) for event in of(events, PermissionDecided)]
    assert decided == [("a", "allow"), ("q", "deny"), ("b", "allow")]
    assert [event.early for event in of(events, ToolStarted)] == [True, False]


@pytest.mark.parametrize("event", [PRE, POST])
async def test_a_call_that_a_hook_is_for_waits_for_its_turn(tmp_path: Path, event: Any) -> None:
    """A hook may rewrite it, or have something to say of what it gave."""
    reads = Reads()
    content = (call("a"),)

    async def wait() -> Answer:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert reads.ran == []
        return answer(*content)

    programs = {"same": saying()}
    async with hooked(
        [{"text": "unused"}], tmp_path, [hook(event, "same")], programs, tools=[read_like("Read", reads)]
    ) as session:
        session.model = Stream(content, wait)
        events = await play(session)

    assert reads.ran == ["a"]
    assert [one.early for one in of(events, ToolStarted)] == [False]


async def test_an_answer_that_breaks_off_discards_its_calls(tmp_path: Path) -> None:
    """The next answer's calls run anew, also under the same id; what was discarded is not known to the model."""
    reads = Reads()
    again = answer(call("a", name="again"), call("w", "Write"))

    async def wait() -> Retrying:
        await reads.until("a", "b")
        return Retrying(1, 0.5, "overloaded_error")

    model = Stream((call("a"), call("b")), wait, again)
    async with session_of(model, tmp_path, reads) as session:
        events = await play(session)
        known = session.ctx.known_files.keys()

    assert reads.ran == ["a", "b", "again", "w"]
    assert known == {"/workspace/again", "/workspace/w"}
    assert [(event.call_id, event.reason) for event in of(events, CallDiscarded)] == [
        ("a", "the answer broke off: overloaded_error"),
        ("b", "the answer broke off: overloaded_error"),
    ]
    told = kinds(events, ToolStarted, ToolFinished, CallDiscarded)
    assert told.index(("CallDiscarded", "a")) < told.index(("ToolStarted", "a"), 2)
    [message] = of(events, ToolResultsMessage)
    assert [block["content"] for block in message.content] == ["Read again", "Write w"]


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn", "refusal", "pause_turn", "tomorrow"])
async def test_a_call_of_an_answer_that_ended_otherwise_is_discarded(tmp_path: Path, stop_reason: str) -> None:
    """It is answered as not run, like every other of that answer."""
    reads = Reads()
    content = (call("a"), call("w", "Write"))

    async def wait() -> Answer:
        await reads.until("a")
        return answer(*content, stop_reason=stop_reason)

    async with session_of(Stream(content, wait), tmp_path, reads) as session:
        events = await play(session)
        known = dict(session.ctx.known_files)

    assert reads.ran == ["a"]
    assert known == {}
    assert [event.reason for event in of(events, CallDiscarded)] == [f"the answer ended with {stop_reason}"]
    [message] = of(events, ToolResultsMessage)
    assert [block["is_error"] for block in message.content] == [True, True]
    assert all(stop_reason in block["content"] for block in message.content)
    assert finished(events).status == ("failed" if stop_reason == "refusal" else "done")


@pytest.mark.parametrize(
    "changed",
    [call("a", name="other"), call("a", "Grep"), call("z")],
    ids=["input", "tool", "id"],
)
async def test_a_result_is_for_exactly_the_same_block(tmp_path: Path, changed: JsonObject) -> None:
    """An answer that in the end has another call in that place gets that one run."""
    reads = Reads()

    async def wait() -> Answer:
        await reads.until("a")
        return answer(changed)

    async with session_of(Stream((call("a"),), wait), tmp_path, reads) as session:
        events = await play(session)

    assert reads.ran == ["a", changed["input"]["name"]]
    assert [event.call_id for event in of(events, CallDiscarded)] == ["a"]
    assert [event.early for event in of(events, ToolStarted)] == [True, False]


async def test_the_model_cannot_change_a_block_behind_a_call(tmp_path: Path) -> None:
    """What was judged and run is a copy: the same object with another content is another call."""
    reads = Reads()
    block = call("a")

    async def wait() -> Answer:
        await reads.until("a")
        block["input"]["name"] = "other"
        return answer(block)

    async with session_of(Stream((block,), wait), tmp_path, reads) as session:
        await play(session)

    assert reads.ran == ["a", "other"]


async def test_ten_run_at_once(tmp_path: Path) -> None:
    """Early ones and those of the turn together, and all of them in the end."""
    reads = Reads()
    reads.gate = anyio.Event()
    names = [f"r{number:02d}" for number in range(25)]
    content = tuple(call(name) for name in names)

    async def wait() -> Answer:
        await reads.until(*names[:10])
        return answer(*content)

    async with session_of(Stream(content, wait), tmp_path, reads) as session, anyio.create_task_group() as group:

        async def open_gate() -> None:
            await reads.until(*names[:10])
            assert reads.gate is not None
            reads.gate.set()

        group.start_soon(open_gate)
        events = await play(session)

    assert sorted(reads.ran) == names
    assert reads.most_at_once == 10
    [message] = of(events, ToolResultsMessage)
    assert [block["tool_use_id"] for block in message.content] == names


async def test_an_interrupt_in_the_stream_ends_the_calls(tmp_path: Path) -> None:
    """Nothing goes on, the record says discarded, and the conversation is as it was before the answer."""
    reads = Reads()
    reads.gate = anyio.Event()

    async def wait() -> None:
        await anyio.sleep_forever()

    async with session_of(Stream((call("a"),), wait), tmp_path, reads) as session, anyio.create_task_group() as group:

        async def stop() -> None:
            await reads.until("a")
            session.interrupt()

        group.start_soon(stop)
        events = await play(session)
        roles = [message["role"] for message in session.messages]

    assert finished(events).status == "interrupted"
    assert reads.at_once == 0
    assert [event.reason for event in of(events, CallDiscarded)] == ["the answer was interrupted"]
    assert of(events, ToolFinished) == []
    assert roles == ["user"]


async def test_an_interrupt_after_the_answer_keeps_what_is_done(tmp_path: Path) -> None:
    """A call that ended early has its result, one that has not is interrupted; nothing is discarded."""
    reads = Reads()
    stop = anyio.Event()

    async def slow(value: Named, ctx: ToolContext) -> None:
        await reads(value, ctx)
        if value.name == "b":
            stop.set()
            await anyio.sleep_forever()

    content = (call("a"), call("b"))

    async def wait() -> Answer:
        await reads.until("a", "b")
        return answer(*content)

    model = Stream(content, wait)
    async with make_session([{"text": "unused"}], tmp_path, tools=[read_like("Read", slow)]) as session:
        session.model = model
        async with anyio.create_task_group() as group:

            async def interrupt() -> None:
                await stop.wait()
                while not any(message["role"] == "assistant" for message in session.messages):
                    await anyio.lowlevel.checkpoint()
                session.interrupt()

            group.start_soon(interrupt)
            events = await play(session)

    assert results(events)[0] == ("Read a", False)
    [message] = of(events, ToolResultsMessage)
    assert [block.get("is_error", False) for block in message.content] == [False, True]
    assert of(events, CallDiscarded) == []


async def test_a_switch_of_models_begins_a_new_head(tmp_path: Path) -> None:
    """What had begun of the refused answer is discarded for that; the fallback's reads begin early like any."""
    reads = Reads()

    class Refusing(Stream):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            self.requests.append(request)
            block = call("a" if request.model is None else "b")
            if len(self.requests) > 2:
                yield DONE
                return
            yield BlockDone(0, block)
            await reads.until(*("a", "b")[: len(self.requests)])
            yield answer(block, stop_reason="refusal" if request.model is None else "tool_use")

    model = Refusing((), anyio.lowlevel.checkpoint)
    async with session_of(model, tmp_path, reads) as session:
        session.fallback = "other"
        events = await play(session)

    assert [request.model for request in model.requests] == [None, "other", "other"]
    assert [event.early for event in of(events, ToolStarted)] == [True, True]
    assert [(event.call_id, event.reason) for event in of(events, CallDiscarded)] == [
        ("a", "the model refused to go on")
    ]
    kept = kinds(events, CallDiscarded, ModelSwitched)
    assert kept == [("CallDiscarded", "a"), ("ModelSwitched", "")]


async def test_a_fault_of_the_model_discards(tmp_path: Path) -> None:
    """The last try failed: the run ends with that, and what had begun is told."""
    reads = Reads()

    async def wait() -> Answer:
        await reads.until("a")
        raise ModelOverloadedError("no answer from the model after 10 tries")

    async with session_of(Stream((call("a"),), wait), tmp_path, reads) as session:
        events = await play(session)

    assert finished(events).status == "model_error"
    [discarded] = of(events, CallDiscarded)
    assert discarded.reason == "the answer failed: no answer from the model after 10 tries"


@pytest.mark.parametrize(
    "block",
    [
        call("../x y"),
        call("a", "Read", name=[[1]]),
        {**call("a"), "id": "two"},
        {"type": "block_of_tomorrow"},
        call("l", "Look"),
    ],
    ids=["bad id", "bad input", "id taken", "unknown block", "another tool"],
)
async def test_what_is_not_a_plain_read_ends_the_head(tmp_path: Path, block: JsonObject) -> None:
    """Nothing that could fail a check of the whole answer runs before that check."""
    reads = Reads()
    content = (call("two"), block, call("b"))

    async def wait() -> Answer:
        await reads.until("two")
        return answer(*content)

    async with session_of(Stream(content, wait), tmp_path, reads) as session:
        events = await play(session)

    assert [event.call_id for event in of(events, ToolStarted) if event.early] == ["two"]


async def test_a_tool_that_fails_badly_fails_in_its_place(tmp_path: Path) -> None:
    """A fault of a tool's author ends the run as it does without the head start, and only if the answer counts."""

    async def broken(value: Named, ctx: ToolContext) -> None:
        raise ZeroDivisionError("of the author's")

    async def wait() -> Retrying:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        return Retrying(1, 0.0, "again")

    async with make_session([{"text": "unused"}], tmp_path, tools=[read_like("Read", broken)]) as session:
        session.model = Stream((call("a"),), wait)
        events = await play(session)

    assert finished(events).status == "done"
    assert [type(event) for event in recorded(tmp_path) if isinstance(event, CallDiscarded | ToolFinished)] == [
        CallDiscarded
    ]
    assert len(of(events, CallDiscarded)) == 1


async def test_news_that_a_discarded_call_would_have_brought_come_with_the_next(tmp_path: Path) -> None:
    """The container was started again meanwhile: the agent hears of it with a result that it gets."""
    reads = Reads()

    async def wait() -> Retrying:
        await reads.until("a")
        return Retrying(1, 0.0, "again")

    async def restarts(value: Named, ctx: ToolContext) -> None:
        await reads(value, ctx)
        ctx.sandbox.restarts = 1  # type: ignore[misc]

    model = Stream((call("a"),), wait, answer(call("b")))
    async with make_session([{"text": "unused"}], tmp_path, tools=[read_like("Read", restarts)]) as session:
        session.model = model
        events = await play(session)

    [message] = of(events, ToolResultsMessage)
    assert "started again" in message.content[0]["content"]


ID = "20260101000000abcdef01"


@pytest.mark.parametrize(
    ("between", "given"),
    [
        ((), "Read a"),
        ((CallDiscarded(call_id="a", tool="Read", reason="x"),), INTERRUPTED),
        ((RequestStarted(turn=2),), INTERRUPTED),
    ],
    ids=["counts", "discarded", "of another request"],
)
def test_what_a_killed_run_had_read_early_counts_if_its_answer_came(
    tmp_path: Path, between: Sequence[Event], given: str
) -> None:
    """Killed after the answer and before its results: what was read for this answer is its result, nothing else."""
    folder = tmp_path / ID
    folder.mkdir()
    tape = TapeWriter(folder / "events.jsonl")
    told = UserMessage(content=(TEXT,))
    said = AssistantMessage(content=(call("a"),), stop_reason="tool_use", model="m", usage=Usage())
    read = ToolFinished(call_id="a", tool="Read", content="Read a", is_error=False, duration_s=0.0)
    for event in (told, RequestStarted(turn=1), read, *between, said):
        tape.append(event)
    tape.close()

    [message] = load_past(tmp_path, ID, tmp_path).missing
    assert [block["content"] for block in message.content] == [given]


def test_a_person_and_a_program_see_what_was_discarded() -> None:
    """By its name where it is known; a program gets no result for it."""
    started = ToolStarted(call_id="a", tool="Read", summary="a.py", input={}, batch=0, early=True)
    gone = CallDiscarded(call_id="a", tool="Read", reason="the answer broke off: overloaded_error")
    screen = io.StringIO()
    view = ConsoleView(Printer(make_console(screen, {})))
    for event in (started, gone):
        view.feed(event)
    lines = [line for event in (started, gone) for line in StreamJson(new_id=lambda: "u").lines(event)]

    assert screen.getvalue().splitlines()[-1] == "  Read a.py: discarded, the answer broke off: overloaded_error"
    [line] = [line for line in lines if line["subtype"] == "call_discarded"]
    assert (line["tool_use_id"], line["tool_name"], line["reason"]) == ("a", "Read", gone.reason)


def test_a_person_and_a_program_see_that_the_model_was_switched() -> None:
    """Both names and the reason."""
    switched = ModelSwitched(model="anthropic:b", before="anthropic:a", reason="the model refused to go on")
    screen = io.StringIO()
    ConsoleView(Printer(make_console(screen, {}))).feed(switched)
    [line] = StreamJson(new_id=lambda: "u").lines(switched)

    assert screen.getvalue() == "! anthropic:a: the model refused to go on; the rest of this run asks anthropic:b\n"
    assert (line["subtype"], line["model"], line["previous_model"]) == ("model_switched", "anthropic:b", "anthropic:a")


@pytest.mark.parametrize(
    ("tool", "events"),
    [
        (read_like("Read"), [BlockDone(1, call("a"))]),
        (read_like("Read"), [BlockDone(0, call("a"), malformed="{")]),
        (read_like("Read"), [BlockDone(0, call("a", file_path="/workspace/nobody/knows"))]),
        (make_tool("Read", parallel_safe=True), [BlockDone(0, call("a"))]),
        (make_tool("Read", read_only=True), [BlockDone(0, call("a"))]),
        (make_tool("Read", parallel_safe=True, read_only=True, source="somebody"), [BlockDone(0, call("a"))]),
    ],
    ids=["a block is missing", "malformed", "not resolved", "not read-only", "not parallel", "not our own"],
)
async def test_in_doubt_a_call_waits_for_its_turn(tmp_path: Path, tool: Tool, events: list[BlockDone]) -> None:
    """Only what is known to change nothing, to lead where the rules say, and to be whole, begins early."""

    class Lost(FakeSandbox):
        async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
            raise OSError(5, "the runner was killed")

    box = Lost() if "file_path" in events[0].block["input"] else FakeSandbox()
    async with (
        make_session([{"text": "unused"}], tmp_path, tools=[tool], sandbox=box) as session,
        Head(session) as head,
    ):
        for event in events:
            head.feed(event)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        begun = await head.settle(answer(*(event.block for event in events)))

    assert begun == {}
    assert recorded(tmp_path) == []
