"""Whatever a model, a person and the tools do, at whatever moment: every request is one that the API takes, the record
folds to the conversation, and nothing is left running, held or waited for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
from agents_rig import make_team, say, task
from engine_session import Named, make_tool, of, play, read_like, use
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.history import fold, repair
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ModelRejectedError, ToolError
from sandbox_agent.events import AgentFinished, AgentStarted, Event, JobFinished, JobStarted, RunFinished
from sandbox_agent.models.base import Answer, ModelRequest
from sandbox_agent.policy.load import load_policy
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tape import read_tape
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import JsonObject, Limits, ToolResult, Usage

STATUSES = {"done", "denied", "failed", "limit", "model_error", "sandbox_error", "interrupted"}
ODD_ANSWERS = ("cut", "paused", "empty", "thinks", "refused", "error", "twice", "exceeded", "too long")
TWICE = {"type": "tool_use", "id": "toolu_twice", "name": "Read", "input": {}}


def numbered(calls: Sequence[JsonObject], request: ModelRequest) -> list[JsonObject]:
    """With ids as of an endpoint that numbers the calls of each conversation: those of other agents are the same."""
    turn = sum(message["role"] == "assistant" for message in request.messages)
    whole = [call for call in calls if isinstance(call["input"], dict)] or [use("Read", name="r")]
    return [{"type": "tool_use", "id": f"call_{turn}_{place}", **call} for place, call in enumerate(whole)]


class World:
    """Takes every choice from a list of numbers; when that is at its end, everybody does the simplest thing: stop.
    `numbers`: models number their calls."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = iter(choices)
        self.sandbox = FakeSandbox()
        self.session: Session | None = None
        self.words = 0
        self.numbers = self.pick([False, True])

    def pick(self, options: Sequence[Any]) -> Any:
        return options[next(self._choices, 0) % len(options)]

    async def moment(self) -> None:
        """Anything may happen here, and time goes by."""
        assert self.session is not None
        members = self.session.ctx.agents.team.members.values()  # type: ignore[union-attr]
        match self.pick(["nothing"] * 12 + ["now", "next", "later", "later", "wait", "child now", "interrupt"]):
            case "now" | "next" | "later" as name:
                self.words += 1
                self.session.queue.put(f"word {self.words}", Priority[name.upper()])
            case "wait":
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
            case "child now":
                for member in list(members)[:1]:
                    member.session.queue.put("a word for the child", Priority.NOW)
            case "interrupt" if self.pick([False, False, True]):
                self.session.interrupt()
            case _:
                pass
        await anyio.lowlevel.checkpoint()

    async def model(self, request: ModelRequest) -> Any:
        await self.moment()
        kind = self.pick(["end", *["tools"] * 14, *ODD_ANSWERS])
        calls = [self.call() for _ in range(self.pick([1, 2, 3, 5, 12]))] if kind in ("tools", "cut") else []
        match kind:
            case "tools" if self.numbers:
                return {"content": numbered(calls, request), "stop_reason": "tool_use"}
            case "tools":
                return {"tools": calls, "text": self.pick(["", "I go on"]) or None}
            case "cut":
                return {"tools": calls, "stop_reason": "max_tokens"}
            case "paused":
                return {"text": "a moment", "stop_reason": "pause_turn"}
            case "empty":
                return Answer(content=(), stop_reason="end_turn", usage=Usage(), model="m")
            case "thinks":
                return {"thinking": "hm", "text": "thought"}
            case "refused":
                return {"text": "no", "stop_reason": "refusal"}
            case "twice":
                return {"content": [TWICE, TWICE], "stop_reason": "tool_use"}
            case "exceeded":
                return {"text": "half an ans", "stop_reason": "model_context_window_exceeded"}
            case "too long":
                raise ModelRejectedError("prompt is too long: 9 tokens > 3000 maximum", kind="prompt_too_long")
            case "error" if self.pick([False, True]):
                raise ModelRejectedError("not today", kind="invalid_request_error", status=400)
            case _:
                return say("the end")

    def call(self) -> JsonObject:
        agent = self.pick(["agent-1", "agent-2", "agent-1.1", "agent-9"])
        return self.pick(  # type: ignore[no-any-return]
            [
                use("Read", name="r"),
                use("Slow", name="s"),
                use("Long", name="l"),
                use("Write", name="w"),
                use("Both", name="b"),
                use("Fails"),
                use("Late"),
                use("Asked", file_path="/workspace/a"),
                use("Nosuch"),
                use("Read", wrong=1),
                {"name": "Read", "input": '{"name": '},
                task("child"),
                task("child", subagent_type="planner"),
                task("child", run_in_background=True),
                use("SendMessage", to=agent, message="go on"),
                use("SendMessage", to=agent, message="go on", run_in_background=True),
                use("TaskOutput", task_id=agent, timeout=50),
                use("TaskStop", task_id=agent),
                use("Dies"),
            ]
        )

    def tools(self) -> list[Tool]:
        async def something(value: Named, ctx: ToolContext) -> None:
            await self.moment()

        async def long(value: Named, ctx: ToolContext) -> ToolResult:
            await self.moment()
            return ToolResult("x" * 4_000)

        async def fails(value: Named, ctx: ToolContext) -> None:
            await self.moment()
            raise ToolError("it failed")

        async def late(value: Named, ctx: ToolContext) -> None:
            await anyio.sleep_forever()

        async def dies(value: Named, ctx: ToolContext) -> None:
            if self.pick([False, False, False, True]):
                self.sandbox.die()
                await ctx.sandbox.exec(["true"])

        return [
            read_like("Read", something),
            read_like("Slow", something),
            read_like("Long", long),
            make_tool("Write", something),
            make_tool("Both", something, parallel_safe=True),
            read_like("Fails", fails),
            make_tool("Late", late, parallel_safe=True, read_only=True, timeout_s=0.001),
            make_tool("Asked", something, edits=True),
            make_tool("Dies", dies),
        ]

    async def person(self, request: ApprovalRequest) -> ApprovalAnswer:
        await self.moment()
        return ApprovalAnswer(self.pick([True, False]), scope=self.pick(["once", "session"]))


async def lived(world: World, folder: Path) -> None:
    tools = world.tools()
    allowed = load_policy(None, allow=[tool.name for tool in tools if tool.name != "Asked"])
    limits = Limits(
        turns=12,
        subagents_at_once=world.pick([8, 1, 2]),
        subagents_total=6,
        context_tokens=world.pick([None, 5_000, 8_000]),
    )
    async with make_team(
        {"": world.model},
        folder,
        own=tools,
        policy=allowed,
        approver=world.person,
        limits=limits,
        sandbox=world.sandbox,
    ) as session:
        world.session = session
        session.background_wait_s = world.pick([600.0, None])
        events = await one_run(session, leave_after=world.pick([None, None, None, 7, 25]))
        check_whole(session, folder)
        if events is not None:
            assert isinstance(events[-1], RunFinished)
            assert events[-1].status in STATUSES
        if session.fault is None:
            await play(session, "and once more")
            check_whole(session, folder)
        await session.jobs.close()
        check_nothing_left(session, folder)


async def one_run(session: Session, leave_after: int | None) -> list[Event] | None:
    """All events of a run; None where it was left early."""
    if leave_after is None:
        return await play(session, "do it")
    with anyio.fail_after(20):
        async with aclosing(run(session, "do it")) as events:
            async for _ in events:
                leave_after -= 1
                if not leave_after:
                    return None
    return None


def recorded(folder: Path) -> list[Event]:
    return [entry.event for entry in read_tape(folder / "events.jsonl").entries]


def check_whole(session: Session, folder: Path) -> None:
    """The record folds to each conversation, and that of whoever is not at work needs no repair."""
    events = recorded(folder)
    at_work = {job.id.partition("_")[0] for job in session.jobs.running()}
    for agent_id, messages in session.journal.conversations.items():
        assert fold(events, agent_id=agent_id) == messages
        if not any(agent_id.startswith(busy) for busy in at_work):
            assert repair(messages).changes == 0


def check_nothing_left(session: Session, folder: Path) -> None:
    events = recorded(folder)
    assert len(of(events, AgentStarted)) == len(of(events, AgentFinished))
    assert len(of(events, JobStarted)) == len(of(events, JobFinished))
    assert session.jobs.running() == ()
    assert session.rights.lane.value == 1
    assert not session.rights.asking.locked()
    team = session.ctx.agents.team  # type: ignore[union-attr]
    assert team._places.value == team.limits.subagents_at_once
    assert not any(member.runs or member.holds or member.waits for member in team.members.values())


@settings(max_examples=120, deadline=None, derandomize=True)
@given(choices=st.lists(st.integers(0, 10_000), min_size=20, max_size=150))
async def test_whatever_happens_the_conversation_stays_valid(choices: list[int]) -> None:
    """Each request is checked as the API would check it, on its way."""
    with tempfile.TemporaryDirectory() as folder:
        await lived(World(choices), Path(folder))
