"""The commands of a chat, one by one."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from engine_session import make_session, make_tool, play, recorded, use
from rich.console import Console

from sandbox_agent.engine.jobs import Ending
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.subagents import Team
from sandbox_agent.events import AgentFinished, AgentStarted, JobFinished, ModeChanged
from sandbox_agent.frontends import chat_commands
from sandbox_agent.frontends.chat_commands import COMMANDS, Desk
from sandbox_agent.frontends.chat_talk import Talk
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.jobs import Job, JobKind, JobState
from sandbox_agent.types import Mode, Usage

TODOS = [
    {"content": "Look", "status": "completed", "activeForm": "Looking"},
    {"content": "Fix", "status": "in_progress", "activeForm": "Fixing\x1b"},
]
USAGE = {"input_tokens": 1000, "output_tokens": 20}


@dataclass
class Paper:
    """A person who answers what is asked, in order; and what they see."""

    answers: list[str | None] = field(default_factory=list)
    file: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        self.printer = Printer(Console(file=self.file, color_system=None, width=200, markup=False, highlight=False))

    async def attention(self) -> None:
        pass

    async def ask(self, question: str) -> str | None:
        return self.answers.pop(0)


@dataclass
class At:
    """A desk, and what it has printed since the last look."""

    desk: Desk
    session: Session
    paper: Paper

    async def does(self, text: str) -> str:
        self.paper.file.seek(0)
        self.paper.file.truncate()
        await chat_commands.obey(self.desk, text)
        return self.paper.file.getvalue()


@asynccontextmanager
async def desk(
    folder: Path, turns: Sequence[dict[str, Any]] = ({"text": "never"},), **options: Any
) -> AsyncIterator[At]:
    paper = Paper()
    async with make_session(turns, folder, **options) as session:
        talk = Talk(session)
        yield At(Desk(talk, paper, lambda: None), session, paper)


def job(session: Session, job_id: str, work: Any, kind: JobKind = JobKind.SHELL) -> Job:
    made = Job(id=job_id, kind=kind, what="make\x1b[2J all", agent_id="main", call_id="t1")
    return session.jobs.add(made, work, session.queue)


async def test_jobs_are_listed_and_stopped(tmp_path: Path) -> None:
    """What they are called by others is shown harmless; their end is the person's doing."""

    async def endless(_: Job) -> Ending:
        await anyio.sleep_forever()
        raise AssertionError

    async with desk(tmp_path) as at:
        assert "Nothing runs" in await at.does("/jobs")
        running = job(at.session, "b1", endless)
        assert "  b1  make\\x1b[2J all" in await at.does("/jobs")
        assert "no job 'b2' is running" in await at.does("/jobs stop b2")
        assert "write /jobs" in await at.does("/jobs bogus")
        with anyio.fail_after(5):
            assert await at.does("/jobs stop b1") == ""
        assert running.state is JobState.KILLED
        assert "was stopped (by the person)" in await at.does("/jobs")
    [ended] = [event for event in recorded(tmp_path) if isinstance(event, JobFinished)]
    assert ended.note == "by the person"


async def test_what_needs_everybody_at_rest_names_who_is_not(tmp_path: Path) -> None:
    """An undo would take the tree from under a job; another model would be another one for its agent."""
    let_go = anyio.Event()

    async def work(_: Job) -> Ending:
        await let_go.wait()
        return Ending(JobState.EXITED)

    async with desk(tmp_path) as at:
        job(at.session, "a1", work, JobKind.AGENT)
        for command in ("/undo", "/model script:x.yaml"):
            assert "jobs are running (a1): /jobs stop ID ends one" in await at.does(command)
        let_go.set()
        await at.session.jobs.wait_idle(5)
        assert "this session has no checkpoints" in await at.does("/undo")
        assert "write /undo, or /undo STEP" in await at.does("/undo one")
        assert "no checkpoints, so what it changed is only known at its end" in await at.does("/diff")


async def test_cost_is_of_all_that_was_used(tmp_path: Path) -> None:
    """All runs, and what summaries and background agents used between them; what no price is known for is said."""
    turns = [{"text": "a", "usage": USAGE}, {"text": "b", "usage": USAGE}]
    async with desk(tmp_path, turns) as at:
        assert await at.does("/cost") == "0 runs, 0 turns, 0 tokens in, 0 out\n"
        for task in ("one", "two"):
            for event in await play(at.session, task):
                at.desk.talk.feed(event)
            at.session.budget.spend("m", Usage(5, 1))
        assert await at.does("/cost") == "2 runs, 2 turns, 2,010 tokens in, 42 out, cost unknown\n"
        at.desk.talk.running_since_s = 0.0
        assert "\nof that in the run that is under way: 1,005 tokens in, 21 out, cost unknown" in await at.does("/cost")


async def test_agents_are_listed_with_how_they_went(tmp_path: Path) -> None:
    """Those at work as well."""
    async with desk(tmp_path) as at:
        assert await at.does("/agents") == "There are no sub-agents.\n"
        for agent_id in ("agent-1", "agent-2"):
            at.desk.talk.feed(
                AgentStarted(
                    agent_id=agent_id,
                    call_id="t",
                    agent_type="explore",
                    description="look\x1b",
                    model=None,
                    mode="plan",
                    tools=(),
                )
            )
        at.desk.talk.feed(
            AgentFinished(
                agent_id="agent-1", call_id="t", status="done", text="", turns=2, calls=1, usage=Usage(), duration_s=1
            )
        )
        shown = await at.does("/agents")

    assert shown == "  agent-1  explore: look\\x1b  done, 2 turns\n  agent-2  explore: look\\x1b  at work\n"


async def test_agents_of_before_are_listed_and_so_is_the_todo_list(tmp_path: Path) -> None:
    """In a session that goes on: the agents can go on, too."""
    before = AgentStarted(
        agent_id="agent-1", call_id="t", agent_type="explore", description="look", model=None, mode="plan", tools=()
    )
    write = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": TODOS}}
    async with desk(tmp_path) as at:
        Team({}, at.session.limits, at.session.jobs, [before]).attach(at.session)
        assert await at.does("/agents") == "  agent-1  explore: look  of before this session went on\n"
        at.session.messages.append({"role": "assistant", "content": [write]})
        assert Talk(at.session).todos == TODOS
        failed = {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}
        at.session.messages.append({"role": "user", "content": [failed]})
        assert Talk(at.session).todos == ()


async def test_the_todo_list_is_the_last_one(tmp_path: Path) -> None:
    """And its step is a note while the agent works."""

    async def body(value: object, ctx: object) -> Any:
        from sandbox_agent.types import ToolResult

        return ToolResult("saved", meta={"todos": TODOS})

    async with desk(tmp_path, [{"tools": [use("List")]}, {"text": "b"}], tools=[make_tool("List", body)]) as at:
        for event in await play(at.session):
            at.desk.talk.feed(event)
        assert await at.does("/todo") == "    [x] Look\n    [>] Fixing\\x1b\n"
        assert at.desk.talk.notes() == []
        at.desk.talk.running_since_s = 0.0
        assert at.desk.talk.notes() == ["[>] Fixing\\x1b (1 of 2 done)"]


async def test_a_locked_mode_cannot_be_loosened(tmp_path: Path) -> None:
    """The place that locks it is named; a stricter one is taken."""
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nname: locked\nmode: default\nlock: [mode]\n")
    async with desk(tmp_path, policy=load_policy(str(path))) as at:
        said = await at.does("/mode bypassPermissions")
        assert "is looser than default, which is locked" in said
        assert f"{path}:4" in said
        assert at.session.mode is Mode.DEFAULT
        assert "The mode is plan from now on." in await at.does("/mode plan")
        assert "The mode is now plan." in await at.does("/policy")
    assert [event.mode for event in recorded(tmp_path) if isinstance(event, ModeChanged)] == ["plan"]


async def test_compact_says_when_there_is_nothing_to_summarise(tmp_path: Path) -> None:
    """The model is not asked then."""
    async with desk(tmp_path) as at:
        assert await at.does("/compact") == "There is nothing yet that a summary could stand for.\n"


async def test_help_has_every_command(tmp_path: Path) -> None:
    """With its arguments."""
    async with desk(tmp_path) as at:
        shown = await at.does("/help")

    assert all(f"  /{name} {command.arguments}".rstrip() in shown for name, command in COMMANDS.items())
