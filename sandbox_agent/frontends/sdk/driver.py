"""Runs a session for the program at the other end of the wire: one turn a prompt, and a result for each.

Between turns the container stays, and the conversation with it. The end of the input ends the session once everything
that was asked for is done, and never aborts anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.applying import look_so_far
from sandbox_agent.engine.child import without
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.steering import set_model
from sandbox_agent.errors import ConfigError, SandboxAgentError
from sandbox_agent.events import AgentFinished, AgentStarted, Event, HookRan, Notice, RunFinished
from sandbox_agent.frontends.sdk.asking import Callback
from sandbox_agent.frontends.sdk.driver_state import State
from sandbox_agent.frontends.sdk.hooks import SdkHooks
from sandbox_agent.frontends.sdk.incoming import blocks_of
from sandbox_agent.frontends.sdk.inside import shake_hands
from sandbox_agent.frontends.sdk.lines import Lines, Turn
from sandbox_agent.frontends.sdk.questions import CallbackQuestions
from sandbox_agent.frontends.sdk.settings import SdkSettings, lets_edit
from sandbox_agent.frontends.sdk.wire import Wire
from sandbox_agent.frontends.stream_json import ANSWER_MISSING
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.jobs import JobKind
from sandbox_agent.types import JsonObject

AGENTS_WAIT_S = 600.0
"""So long is a sub-agent in the background waited for once no more input can come."""


class Driver:
    """One process of the program's. `say` puts a line where people look. `errors` is True while the last result is one;
    `interrupt` ends the turn under way, for signals."""

    def __init__(self, state: State, say: Callable[[str], None]) -> None:
        self._state = state
        self._wire: Wire = state.wire
        self._lines: Lines = state.lines
        self._settings: SdkSettings = state.settings
        self._say = say
        self._callback = Callback(state.wire, state.tell) if state.settings.asks else None
        self._hooks: SdkHooks | None = None
        self._ended_agents: dict[str, AgentStarted] = {}
        self._tasks: TaskGroup | None = None
        self.errors = False
        self.status = "done"
        """How the last turn ended."""
        self.interrupted = False
        """Set by a signal: the session ends after the turn that is under way."""

    @property
    def _session(self) -> Session:
        assert self._state.session is not None
        return self._state.session

    @property
    def owes_result(self) -> bool:
        """Whether something was asked for that has no result yet."""
        return self._state.running or bool(self._state.inbox)

    def interrupt(self) -> None:
        """End the turn under way, and the session behind it."""
        self.interrupted = True
        if self._state.session is not None:
            self._state.session.interrupt()
        self._state.note()

    async def hold(self, tasks: TaskGroup) -> None:
        """The whole conversation. `tasks` outlives it.

        Raises:
            SandboxAgentError: the session cannot be opened, or was lost; the program has had a result then.
        """
        state, self._tasks = self._state, tasks
        await state.begun.wait()
        if state.fault is None and state.wire.closed and not state.inbox:
            return
        try:
            if state.fault is None:
                await self._open()
            if state.fault is not None:  # it may have come behind what was done
                raise ConfigError(state.fault)
        except SandboxAgentError as exc:
            self._refuse(str(exc))
            raise

    async def _open(self) -> None:
        state, settings = self._state, self._settings
        self._hooks = hooks = SdkHooks(state.hooks, self._wire, self._lines, settings.config.workspace.resolve())
        served = await shake_hands(settings.sdk_servers, self._wire, self._lines, self._say)
        async with open_session(
            settings.config,
            approver=self._callback,
            ask=CallbackQuestions(self._wire, state.tell) if settings.asks else None,
            hooks=hooks.program_hooks(),
            served=served,
            agents=state.agents,
        ) as session:
            self._take(session, hooks)
            await self._talk(session)
            if session.fault is None and session.unapplied is None and not self.interrupted:
                await session.changes()
            self._tell_kept(session)

    def _take(self, session: Session, hooks: SdkHooks) -> None:
        """The session is there: what was asked for and is not the engine's, and who wants to know it."""
        settings, state = self._settings, self._state
        session.background_wait_s = None  # what ends in the background begins a turn of its own
        if self._callback is not None:
            self._callback.session = session
        hooks.session, hooks.record = session, str(sessions_dir() / session.id / EVENTS_FILE)
        self._lines.session_id = settings.session_id or session.id
        if settings.tools is not None:
            left_out = [tool.name for tool in session.pool.tools if tool.source == "builtin"]
            names = [name for name in left_out if name not in settings.tools]
            session.pool = without(session.pool, names, "the program left it out")
        if settings.system is not None:
            texts = [prompt("sdk/place"), settings.system]
            session.system = tuple({"type": "text", "text": text} for text in texts if text.strip())
        if settings.system_added:
            session.system = (*session.system, {"type": "text", "text": settings.system_added})
        for note in settings.notes:
            session.emit(Notice(level="warning", text=note))
        for event in hooks.never():
            session.emit(Notice(level="warning", text=f"a hook on {event} never runs here: there is no such event"))
        state.session = session
        state.ready.set()

    async def _talk(self, session: Session) -> None:
        state = self._state
        while not self.interrupted and session.fault is None:
            if state.inbox or session.queue.waiting():
                await self._turn(session)
            elif state.wire.closed and not self._agents_at_work(session):
                return
            else:
                await self._something(session)

    def _agents_at_work(self, session: Session) -> bool:
        return any(job.kind is JobKind.AGENT for job in session.jobs.running())

    async def _something(self, session: Session) -> None:
        """Wait for a message, the end of a job, or the end of the input; not for ever once that has come."""
        patience_s = AGENTS_WAIT_S if self._state.wire.closed else None
        with anyio.move_on_after(patience_s) as patience:
            async with anyio.create_task_group() as tasks:

                async def arrived() -> None:
                    await session.queue.arrived()
                    tasks.cancel_scope.cancel()

                async def changed() -> None:
                    await self._state.changed.wait()
                    tasks.cancel_scope.cancel()

                async def lost() -> None:
                    await session.failed.wait()
                    tasks.cancel_scope.cancel()

                for wait in (arrived, changed, lost):
                    tasks.start_soon(wait)
        if patience.cancelled_caught:
            await session.jobs.stop_all(f"no more input can come, and {AGENTS_WAIT_S:g} s were waited")

    async def _turn(self, session: Session) -> None:
        """One prompt to its result, with whatever else comes meanwhile."""
        state = self._state
        self._lines.turn = Turn()
        state.running = True
        state.tell("running")
        if state.next_model is not None:
            spec, state.next_model = state.next_model, None
            try:
                await set_model(session, spec)
            except ConfigError as exc:  # it was asked for while nobody could say so
                session.emit(Notice(level="warning", text=f"the model stays {session.model.name}: {exc}"))
        refused = await self._admit() if state.inbox else None
        self._wire.send(self._lines.init(session, list(state.agents)))
        if refused is not None:
            self._wire.send(self._lines.result_line(result=refused))
        else:
            session.unapplied = None
            await self._run(session)
            if session.fault is None or self._lines.turn.finished is not None:
                await self._conclude(session)
        state.running = False
        if not (state.inbox or session.queue.waiting() or self._agents_at_work(session)):
            state.tell("idle")

    async def _run(self, session: Session) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._admit_more)
            async with aclosing(run(session, None)) as events:
                async for event in events:
                    self._feed(event, session)
            tasks.cancel_scope.cancel()

    async def _admit_more(self) -> None:
        """What comes while a turn runs goes into it."""
        while True:
            changed = self._state.changed
            while self._state.inbox:
                refused = await self._admit()
                if refused is not None:
                    self._session.emit(Notice(level="warning", text=f"a message was not let in: {refused}"))
            await changed.wait()

    async def _admit(self) -> str | None:
        """Put the oldest message of the inbox into the conversation; why a hook does not let it, None where it went."""
        frame = self._state.inbox[0]
        assert self._hooks is not None
        blocks = blocks_of(frame)
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        refused, contexts = await self._hooks.prompt(text)
        self._state.inbox.remove(frame)
        if isinstance(frame.get("uuid"), str):
            self._lines.turn.uuids.append(frame["uuid"])
        if self._hooks.has("UserPromptSubmit"):
            decision = "deny" if refused is not None else None
            ran = HookRan(
                hook="UserPromptSubmit", event="user_prompt_submit", place="program", exit_code=None, duration_s=0
            )
            self._session.emit(replace(ran, decision=decision, reason=refused))
        if refused is None and not blocks:
            refused = "the message has no content"
        if refused is None:
            added = [{"type": "text", "text": context} for context in contexts]
            self._session.queue.put_blocks([*blocks, *added], Priority.NEXT)
        return refused

    def _feed(self, event: Event, session: Session) -> None:
        unfinished = self._lines.unfinished_text
        if isinstance(event, RunFinished) and event.agent_id == "main":
            if event.status == "interrupted" and unfinished.strip():
                self._wire.send(self._lines.said_by_nobody(unfinished, model=session.model.name))
            for line in self._lines.fault_lines(event):
                self._wire.send(line)
        for line in self._lines.of(event, session):
            self._wire.send(line)
        if isinstance(event, Notice) and event.level == "warning":
            self._say(event.text)
        if isinstance(event, AgentStarted | AgentFinished):
            self._tell_of_agent(event)

    def _tell_of_agent(self, event: AgentStarted | AgentFinished) -> None:
        """Hooks on sub-agents hear of them; nothing waits for what they say."""
        assert self._hooks is not None
        assert self._tasks is not None
        if isinstance(event, AgentStarted):
            self._ended_agents[event.agent_id] = event
        name = "SubagentStart" if isinstance(event, AgentStarted) else "SubagentStop"
        if self._hooks.has(name):
            started = self._ended_agents.get(event.agent_id)
            about: JsonObject = {"agent_id": event.agent_id, "agent_type": started.agent_type if started else ""}
            if name == "SubagentStop":
                about |= {"stop_hook_active": False, "agent_transcript_path": self._hooks.record}
            self._tasks.start_soon(self._hooks.aside, name, about)

    async def _conclude(self, session: Session) -> None:
        """Bring the changes to the folder where the program consented, and end the turn with its result."""
        more = await self._changes(session)
        finished = self._lines.turn.finished
        if finished is not None and finished.structured_output is not None:
            more["structured_output"] = finished.structured_output
        elif finished is not None and finished.answer_missing:
            more |= {"subtype": ANSWER_MISSING, "terminal_reason": "completed"}
        if finished is not None:
            self.status = finished.status
        line = self._lines.result(session, more)
        self.errors = bool(line["is_error"])
        self._wire.send(line)

    async def _changes(self, session: Session) -> JsonObject:
        settings = self._settings
        answered = self._callback is not None and self._callback.consented
        hooked = self._hooks is not None and self._hooks.consented
        consent = settings.consented or answered or hooked or lets_edit(session.mode)
        apply = settings.apply == "always" or (settings.apply == "consent" and consent)
        try:
            outcome = await look_so_far(session, apply=apply and not self.interrupted)
        except SandboxAgentError as exc:
            self._say(f"what was changed could not be looked at: {exc}")
            return {"unapplied_files": [], "apply_error": str(exc)}
        with session.listen() as events:
            while True:
                try:
                    event = events.receive_nowait()
                except anyio.WouldBlock:
                    break
                self._feed(event, session)
        session.hang_up()
        if outcome is None:
            return {"applied_files": [], "unapplied_files": []}
        for path, why in sorted({**outcome.withheld, **outcome.conflicts}.items()):
            self._say(f"not applied: {path} ({why})")
        return {
            "applied_files": list(outcome.applied),
            "unapplied_files": list(outcome.unapplied),
            "withheld": dict(outcome.withheld),
            "conflicts": dict(outcome.conflicts),
        }

    def _tell_kept(self, session: Session) -> None:
        if session.unapplied:
            self._say(f"not applied, and kept: sandbox-agent diff {session.id}   sandbox-agent apply {session.id}")

    def _refuse(self, error: str) -> None:
        """A session that cannot be: the program gets a result all the same, and the words with it."""
        self.errors = True
        fields = {"subtype": "error_during_execution", "is_error": True, "errors": [error]}
        self._wire.send(self._lines.result_line(**fields, terminal_reason="startup_failed"))
