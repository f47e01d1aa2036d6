"""Every state of the loop and every priority: when a message is in the conversation, and what became of open calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from agents_rig import heard
from engine_session import Named, finished, make_session, make_tool, play, read_like, strict, use

from sandbox_agent.engine import session_hooks
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.engine.jobs import Ending
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.events import AssistantMessage, Event, Notice, ToolFinished, ToolResultsMessage
from sandbox_agent.models.base import ModelEvent, ModelRequest, TextPiece
from sandbox_agent.models.script_file import Turn
from sandbox_agent.models.script_player import build_answer
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.jobs import Job, JobKind, JobState
from sandbox_agent.types import JsonObject

NOW, NEXT, LATER = Priority.NOW, Priority.NEXT, Priority.LATER
WORDS = "first word", "second word"
RAN = "First", "Second"


class Outcome(NamedTuple):
    """Which request has the messages for the first time, and the results of the turn's two calls."""

    request: int
    results: tuple[str, str] = RAN


CUT = (INTERRUPTED, INTERRUPTED)
HALF = ("First", INTERRUPTED)

TABLE: dict[str, dict[Priority, Outcome]] = {
    # The run: request 1 asks for two calls, a batch each; request 2 gets their results and is answered with the end.
    "before the first request": {NOW: Outcome(1), NEXT: Outcome(1), LATER: Outcome(3)},
    "request in flight": {NOW: Outcome(2), NEXT: Outcome(2), LATER: Outcome(3)},
    "text streams": {NOW: Outcome(2), NEXT: Outcome(2), LATER: Outcome(3)},
    "hook before a call": {NOW: Outcome(2, CUT), NEXT: Outcome(2), LATER: Outcome(3)},
    "batch runs": {NOW: Outcome(2, CUT), NEXT: Outcome(2), LATER: Outcome(3)},
    "hook after a call": {NOW: Outcome(2, HALF), NEXT: Outcome(2), LATER: Outcome(3)},
    "between batches": {NOW: Outcome(2, HALF), NEXT: Outcome(2), LATER: Outcome(3)},
    "question is open": {NOW: Outcome(2, HALF), NEXT: Outcome(2), LATER: Outcome(3)},
    "results are written": {NOW: Outcome(2), NEXT: Outcome(2), LATER: Outcome(3)},
    "would stop": {NOW: Outcome(3), NEXT: Outcome(3), LATER: Outcome(3)},
    "stop hook": {NOW: Outcome(3), NEXT: Outcome(3), LATER: Outcome(3)},
    "background wait": {NOW: Outcome(3), NEXT: Outcome(3), LATER: Outcome(3)},
    "idle after the end": {NOW: Outcome(3), NEXT: Outcome(3), LATER: Outcome(3)},
    "resumed": {NOW: Outcome(1), NEXT: Outcome(1), LATER: Outcome(1)},
}


@dataclass
class Stage:
    """Puts the messages where the state is reached for the first time. `requests` has what the model was asked."""

    state: str
    messages: tuple[tuple[str, Priority], ...]
    requests: list[ModelRequest] = field(default_factory=list)
    session: Session | None = None
    reached: bool = False
    name: str = "staged"

    def at(self, state: str) -> None:
        if state == self.state and not self.reached:
            self.reached = True
            assert self.session is not None
            for words, priority in self.messages:
                self.session.queue.put(words, priority)

    async def in_(self, state: str) -> None:
        """The same, in something that takes its time: whoever is cancelled there notices."""
        self.at(state)
        await anyio.lowlevel.checkpoint()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        await self.in_("request in flight")
        yield TextPiece("I ")
        await self.in_("text streams")
        has_run = any(
            block.get("type") == "tool_result" for message in request.messages for block in message["content"]
        )
        turn = {"text": "the end"} if has_run else {"tools": [use("First"), use("Second", file_path="/workspace/a")]}
        yield build_answer(Turn.model_validate(turn), f"toolu_{len(self.requests)}", self.name, {})

    async def window_tokens(self, used_tokens: int, name: str | None = None) -> int | None:
        return None

    async def aclose(self) -> None:
        pass

    def saw(self, event: Event) -> None:
        match event:
            case ToolFinished(tool="First"):
                self.at("between batches")
            case ToolResultsMessage():
                self.at("results are written")
            case AssistantMessage(stop_reason="end_turn"):
                self.at("would stop")
            case Notice(text=text) if text.startswith("waiting for what runs"):
                self.at("background wait")
            case _:
                pass

    def hooks(self) -> list[ProgramHook]:
        states = {
            HookEvent.SESSION_START: "before the first request",
            HookEvent.PRE_TOOL_USE: "hook before a call",
            HookEvent.POST_TOOL_USE: "hook after a call",
            HookEvent.STOP: "stop hook",
        }
        return [ProgramHook(state, event, self._hook(state)) for event, state in states.items()]

    def _hook(self, state: str) -> Callable[[JsonObject], Any]:
        async def hook(about: JsonObject) -> None:
            await self.in_(state)

        return hook


async def staged(state: str, messages: Sequence[tuple[str, Priority]], folder: Path) -> tuple[Stage, Session]:
    """Play the run, and a second one where something waits after the first."""
    stage = Stage(state, tuple(messages))

    async def first(value: Named, ctx: ToolContext) -> None:
        await stage.in_("batch runs")

    async def person(request: ApprovalRequest) -> ApprovalAnswer:
        await stage.in_("question is open")
        return ApprovalAnswer(True)

    tools = [read_like("First", first), make_tool("Second", edits=True)]
    async with make_session(
        [{"text": "unused"}], folder, tools=tools, policy=load_policy(None), approver=person
    ) as session:
        stage.session, session.model = session, strict(stage)  # type: ignore[arg-type]
        session_hooks.attach(session, stage.hooks())
        emit = session.journal.emit

        def heard_too(event: Event) -> None:
            emit(event)
            stage.saw(event)

        session.journal.emit = heard_too  # type: ignore[method-assign]
        if state == "background wait":
            start_a_job(session, stage)
        stage.at("resumed")
        events = await play(session, "do it")
        if state == "idle after the end":
            stage.at(state)
            with anyio.fail_after(20):
                assert finished([event async for event in run(session, None)]).status == "done"
        assert finished(events).status == "done"
        assert stage.reached
        assert not session.queue.waiting()
    return stage, session


def start_a_job(session: Session, stage: Stage) -> None:
    """It ends once the message has been heard; else the run would wait for it."""

    async def work(job: Job) -> Ending:
        while len(stage.requests) < 3:
            await anyio.lowlevel.checkpoint()
        return Ending(JobState.EXITED, exit_code=0)

    job = Job(id="job_1", kind=JobKind.SHELL, what="sleep", agent_id="main", call_id="")
    session.jobs.add(job, work, session.queue)


def results_in(session: Session) -> tuple[str, ...]:
    blocks = [block for message in session.messages for block in message["content"]]
    return tuple(str(block["content"]) for block in blocks if block.get("type") == "tool_result")


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize("state", TABLE)
async def test_when_a_message_is_heard(tmp_path: Path, state: str, priority: Priority) -> None:
    """The first request that has it, with both messages in their order behind whatever results there are."""
    stage, session = await staged(state, [(words, priority) for words in WORDS], tmp_path)
    expected = TABLE[state][priority]

    having = [number for number, request in enumerate(stage.requests, start=1) if WORDS[0] in str(request.messages)]
    assert having[0] == expected.request
    said = heard(stage.requests[expected.request - 1])
    results = results_in(session)
    lines = said.splitlines()
    if state == "resumed":
        assert lines == [*WORDS, "do it"]
    elif expected.request == 1 or (priority is NOW and state in ("request in flight", "text streams")):
        assert lines == ["do it", *WORDS]
    elif expected.request == 2:
        assert lines == [*expected.results, *WORDS]
    else:
        assert lines == list(WORDS)
    assert results == expected.results
    assert [str(message["content"]).count(WORDS[0]) for message in session.messages if WORDS[0] in str(message)] == [1]


@pytest.mark.parametrize("state", TABLE)
async def test_sooner_ones_come_before_later_ones(tmp_path: Path, state: str) -> None:
    """Whichever was put first: nothing that waits longer overtakes what interrupts."""
    order = [LATER, NOW, NEXT, LATER, NOW, NEXT]
    messages = [(f"{priority.name} {number}", priority) for number, priority in enumerate(order)]
    _, session = await staged(state, messages, tmp_path)
    texts = [str(block.get("text")) for message in session.messages for block in message["content"]]
    heard_in_order = [text for text in texts if text.partition(" ")[0] in Priority.__members__]
    assert heard_in_order == ["NOW 1", "NOW 4", "NEXT 2", "NEXT 5", "LATER 0", "LATER 3"]
