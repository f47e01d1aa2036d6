"""Sub-agents: sessions of their own within a session, driven by the same loop.

A sub-agent shares with the agent that started it all that is not its own: container, workspace, journal, policy, write
lane, hooks. Its own are its conversation, its tools (of its parent's, those that its type has), its limits and its
mode, which binds besides those of every agent above it. The caps hold for the whole tree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import anyio

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.child import child_of, depth_of, first_of, without
from sandbox_agent.engine.jobs import Ending, Jobs
from sandbox_agent.engine.jobs_left import JobsLeft
from sandbox_agent.engine.loop import Progress, drive
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.shell_jobs import ShellDesk
from sandbox_agent.engine.window import Window
from sandbox_agent.errors import SandboxError, ToolError
from sandbox_agent.events import AgentFinished, AgentStarted, Notice
from sandbox_agent.models.names import full_name
from sandbox_agent.tools.agents import UNHEARD, AgentReport, AgentTask
from sandbox_agent.tools.base import current_call
from sandbox_agent.tools.jobs import Job, JobKind, JobOutput, JobState
from sandbox_agent.tools.validation import near_names
from sandbox_agent.types import Limits


@dataclass(slots=True, eq=False)
class Member:
    """One sub-agent: `progress` is of its present task, or its last, `call_id` the call that has it. `holds` says that
    it takes one of the places for agents at work; while it waits for `waits` agents of its own it does not."""

    session: Session
    type: AgentType
    description: str
    progress: Progress = field(default_factory=Progress)
    call_id: str = ""
    runs: bool = False
    holds: bool = False
    waits: int = 0


class Team:
    """All sub-agents of one session. `earlier` are those of the session before it was resumed, which can go on, and
    `jobs_left` what they had running then."""

    def __init__(
        self,
        types: Mapping[str, AgentType],
        limits: Limits,
        jobs: Jobs,
        earlier: Iterable[AgentStarted] = (),
        jobs_left: JobsLeft | None = None,
    ) -> None:
        self.types = types
        self.limits = limits
        self.jobs = jobs
        self.members: dict[str, Member] = {}
        self._earlier = {event.agent_id: event for event in earlier}
        self._jobs_left = jobs_left or JobsLeft()
        self._notes: list[str] = []
        self._places = anyio.Semaphore(limits.subagents_at_once) if limits.subagents_at_once else None

    @property
    def started(self) -> int:
        """How many there have ever been."""
        return len(self.members.keys() | self._earlier.keys())

    @property
    def earlier(self) -> Mapping[str, AgentStarted]:
        """Those of before the session was resumed that have not gone on since, by id."""
        return {agent_id: event for agent_id, event in self._earlier.items() if agent_id not in self.members}

    def start(self, parent: Session, task: AgentTask) -> Member:
        """A new member, which does nothing yet.

        Raises:
            ToolError: no such type, or a cap.
        """
        kind = self._type(task.agent_type)
        why = self._why_none(depth_of(parent) + 1)
        if why is not None:
            raise ToolError(why)
        if self.started >= self.limits.subagents_total:
            raise ToolError(_capped("total", self.limits.subagents_total, "and so many were started"))
        stem = "agent-" if parent.parent is None else f"{parent.agent_id}."
        agent_id = next(name for name in (f"{stem}{number}" for number in count(1)) if not self._taken(name))
        return self._join(parent, kind, agent_id, task.description, full_name(task.model or kind.model))

    def find(self, parent: Session, agent_id: str) -> Member:
        """A sub-agent that this agent has started, in this run of the session or an earlier one.

        Raises:
            ToolError: there is none; the text names those there are.
        """
        member = self.members.get(agent_id)
        if member is not None and member.session.parent is parent:
            return member
        earlier = self._earlier.get(agent_id)
        if member is None and earlier is not None and earlier.parent_id == parent.agent_id:
            kind = self._type(earlier.agent_type)
            member = self._join(parent, kind, agent_id, earlier.description, earlier.model)
            self._jobs_left.tell(agent_id, member.session.queue)
            for text in self._notes:
                member.session.queue.put(text, Priority.NEXT, wakes=False)
            return member
        known = [one for one, member in self.members.items() if member.session.parent is parent]
        known += [one for one, event in self._earlier.items() if event.parent_id == parent.agent_id]
        names = ", ".join(dict.fromkeys(known)) or "(none)"
        raise ToolError(f"You have no sub-agent {agent_id!r}. Yours are: {names}.")

    def note(self, text: str) -> None:
        """Let every sub-agent that has done something know this when it goes on."""
        self._notes.append(text)
        for member in self.members.values():
            if member.session.messages:
                member.session.queue.put(text, Priority.NEXT, wakes=False)

    async def work(self, member: Member, words: str, *, background: bool = False) -> AgentReport:
        """Have a member do something, once there is a place for it.

        Raises:
            SandboxError: the sandbox is gone.
        """
        session = member.session
        _catch_up(session)
        continued = bool(session.messages)
        member.progress, member.runs = Progress(), True
        call_id = member.call_id = current_call()
        try:
            session.emit(
                AgentStarted(
                    agent_id=session.agent_id,
                    call_id=call_id,
                    agent_type=member.type.name,
                    description=member.description,
                    model=session.other_model,
                    mode=session.mode.value,
                    tools=session.pool.names(),
                    background=background,
                    continued=continued,
                )
            )
            async with self._place(member):
                member.progress = Progress()
                await drive(session, words, member.progress)
        finally:
            try:
                await self._end_behind(session)
            finally:
                member.runs = False
                self._conclude(member, call_id)
        if isinstance(member.progress.fault, SandboxError):
            raise member.progress.fault
        return report_of(member)

    @asynccontextmanager
    async def waiting(self, parent: Session) -> AsyncIterator[None]:
        """An agent waits for others meanwhile: its own place is free. Else agents that wait could take them all."""
        member = self.members.get(parent.agent_id)
        if member is None:
            yield
            return
        member.waits += 1
        self._leave(member)
        try:
            yield
        finally:
            member.waits -= 1
            if not member.waits:
                await self._enter(member)

    @asynccontextmanager
    async def _place(self, member: Member) -> AsyncIterator[None]:
        assert self._places is not None
        if self._places.value == 0:
            text = f"waits: {self.limits.subagents_at_once} sub-agents are at work (limits.subagents.at_once)"
            member.session.emit(Notice(agent_id=member.session.agent_id, level="info", text=text))
        await self._enter(member)
        try:
            yield
        finally:
            self._leave(member)

    async def _enter(self, member: Member) -> None:
        if self._places is None or member.holds:
            return
        await self._places.acquire()
        if member.holds or member.waits:  # it came by another way meanwhile, or waits once more
            self._places.release()
        else:
            member.holds = True

    def _leave(self, member: Member) -> None:
        if self._places is not None and member.holds:
            member.holds = False
            self._places.release()

    async def _end_behind(self, session: Session) -> None:
        """Nobody is there any more who would hear of what a sub-agent has running in the background."""
        if self.jobs.running(session.agent_id):
            with anyio.CancelScope(shield=True):
                await self.jobs.stop_all("the sub-agent that had started it ended", session.agent_id)

    def _conclude(self, member: Member, call_id: str) -> None:
        progress = member.progress
        if progress.stop is None:  # it never came to its turn
            progress.stop, progress.error = "interrupted", "interrupted"
        member.session.emit(
            AgentFinished(
                agent_id=member.session.agent_id,
                call_id=call_id,
                status=progress.stop,
                text=progress.text,
                turns=progress.turns,
                calls=progress.calls,
                usage=progress.usage,
                duration_s=progress.duration_s,
                error=progress.error,
            )
        )

    def _type(self, name: str) -> AgentType:
        kind = self.types.get(name)
        if kind is None:
            near = near_names(name, self.types)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ToolError(f"There is no type of sub-agent {name!r}.{hint} The types are: {', '.join(self.types)}.")
        return kind

    def _taken(self, agent_id: str) -> bool:
        return agent_id in self.members or agent_id in self._earlier

    def _join(
        self, parent: Session, kind: AgentType, agent_id: str, description: str, other_model: str | None
    ) -> Member:
        session = child_of(parent, kind, agent_id, other_model or parent.other_model)
        self.attach(session)
        member = self.members[agent_id] = Member(session, kind, description)
        return member

    def attach(self, session: Session) -> None:
        """Give an agent its jobs and its sub-agents; where it may have none of these, the tools for them go."""
        why = self._why_none(depth_of(session) + 1)
        if why is not None:
            session.pool = without(session.pool, {"Task", "SendMessage"}, why)
        session.ctx.agents = Desk(self, session)
        session.ctx.jobs = ShellDesk(session)

    def _why_none(self, depth: int) -> str | None:
        """Why no sub-agent can be so deep; None where one can."""
        if depth > self.limits.subagent_depth:
            return _capped("depth", self.limits.subagent_depth, "and a sub-agent of yours would be deeper")
        if self._places is None:
            return _capped("at_once", 0, "so there are none")
        return None


class Desk:
    """The sub-agents of one agent; see `tools.agents.AgentDesk`. `team` has those of all."""

    def __init__(self, team: Team, session: Session) -> None:
        self.team = team
        self._session = session

    async def run(self, task: AgentTask) -> AgentReport:
        member = self.team.start(self._session, task)
        async with self.team.waiting(self._session):
            return await self.team.work(member, task.prompt)

    def launch(self, task: AgentTask) -> str:
        member = self.team.start(self._session, task)
        self._behind(member, task.prompt)
        return member.session.agent_id

    async def go_on(self, agent_id: str, message: str) -> AgentReport | None:
        member = self.team.find(self._session, agent_id)
        if member.runs:
            member.session.queue.put(message, Priority.NEXT)
            return None
        async with self.team.waiting(self._session):
            return await self.team.work(member, message)

    def go_on_behind(self, agent_id: str, message: str) -> bool:
        member = self.team.find(self._session, agent_id)
        if member.runs:
            member.session.queue.put(message, Priority.NEXT)
            return False
        self._behind(member, message)
        return True

    def at_work_for(self, call_id: str) -> str | None:
        mine = (one for one in self.team.members.values() if one.session.parent is self._session)
        return next((one.session.agent_id for one in mine if one.call_id == call_id), None)

    def waiting(self) -> AbstractAsyncContextManager[None]:
        return self.team.waiting(self._session)

    def _behind(self, member: Member, words: str) -> None:
        agent_id = member.session.agent_id
        member.runs = True

        async def work(_: Job) -> Ending:
            try:
                report = await self.team.work(member, words, background=True)
            except SandboxError as exc:
                first_of(member.session).fail(exc)  # no call of the first agent waits for it to find out
                raise
            ended_well = report.status in ("done", "denied")
            unheard = f"; {UNHEARD}" if report.unheard else ""
            note = "" if ended_well else f"{report.status}: {report.error}{unheard}"
            return Ending(JobState.EXITED if ended_well else JobState.FAILED, note=note, tail=report.text)

        async def said(offset: int, limit_bytes: int) -> JobOutput:
            data = member.progress.text.encode("utf-8", "replace")
            return JobOutput(data[offset : offset + limit_bytes], min(offset, len(data)), len(data))

        job = Job(
            id=self.team.jobs.free_id(agent_id),
            kind=JobKind.AGENT,
            what=member.description,
            agent_id=self._session.agent_id,
            call_id=current_call(),
            read=said,
        )
        try:
            self.team.jobs.add(job, work, self._session.queue)
        except ToolError:
            member.runs = False
            raise


def _catch_up(session: Session) -> None:
    """Have an agent go on with what the person has chosen since it ended: the model, and the permission mode."""
    first = first_of(session)
    if session.model is not first.model:
        session.model, session.window = first.model, Window(session.limits.context_tokens)
    session.fallback = first.fallback
    if session.follows:
        session.mode = session.modes[0]


def report_of(member: Member) -> AgentReport:
    """How a member's task ended."""
    progress = member.progress
    return AgentReport(
        agent_id=member.session.agent_id,
        status=progress.stop or "failed",
        text=progress.text,
        error=progress.error,
        turns=progress.turns,
        calls=progress.calls,
        usage=progress.usage,
        duration_s=progress.duration_s,
        unheard=member.session.queue.waiting(Priority.NEXT),
    )


def _capped(name: str, value: int, why: str) -> str:
    return (
        f"No sub-agent was started: the limit subagents.{name} of this session is {value}, {why}. Do the work yourself"
        + (", or go on with a sub-agent that has ended (SendMessage)." if name == "total" else ".")
    )
