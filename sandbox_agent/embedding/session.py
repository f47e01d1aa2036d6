"""A session as a program has it: several tasks one after the other, then the changes, and what is applied of them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Literal, Unpack, get_args

import anyio

from sandbox_agent.config import sessions_dir
from sandbox_agent.embedding.options import Options, config_of
from sandbox_agent.embedding.result import Result
from sandbox_agent.engine import acceptance
from sandbox_agent.engine import session as engine
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.engine.queue import Priority
from sandbox_agent.events import Event
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.workspaces.base import ApplyOutcome, Change

When = Literal["now", "next", "later"]
"""`now` interrupts what goes on, `next` comes before the next model request, `later` when the agent would stop."""

_NOT_OPEN = "the session is not open: use it as `async with sandbox_agent.Session(...) as session:`"


class Session:
    """One container on one folder, as an async context; the container goes with it, whatever happens.

    One task at a time: `run` yields its events, `ask` waits for its end. The next task goes on with the same
    conversation in the same container. `changes` ends that: it closes the container and says what was changed; `apply`
    brings it to the folder. What was not applied is kept for `sandbox-agent apply`.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        """Nothing starts before the context is entered.

        Raises:
            ConfigError: an option has a value that it cannot have.
        """
        self._config = config_of(options)
        self._tools = tuple(options.get("tools", ()))
        self._approver = options.get("approver")
        self._answerer = options.get("answerer")
        self._hooks = tuple(options.get("hooks", ()))
        self._stack = AsyncExitStack()
        self._entered = False
        self._opened: engine.Session | None = None
        self._summary = RunSummary()
        self._changes: tuple[Change, ...] | None = None
        self._outcome = ApplyOutcome()
        self._under_way: weakref.ref[AsyncGenerator[Event, None]] | None = None
        self._idle = anyio.Event()
        self._idle.set()
        self._aside: list[Event] = []

    async def __aenter__(self) -> Session:
        """Open it; the container starts beside what follows.

        Raises:
            ConfigError: the configuration cannot be used (policy, model, key, tools, unknown session).
            WorkspaceError: the folder cannot be used.
            SandboxUnavailableError: no engine answers; nothing was started.
            RuntimeError: the event loop is not asyncio's, or it was open before.
        """
        if self._entered:
            raise RuntimeError("a session opens once; make another, with resume=ID to go on with it")
        self._entered = True
        try:
            asyncio.get_running_loop()
        except RuntimeError as exc:
            raise RuntimeError("sandbox_agent needs an event loop of asyncio; trio will not do") from exc
        self._opened = await self._stack.enter_async_context(
            open_session(
                self._config, approver=self._approver, ask=self._answerer, hooks=self._hooks, tools=self._tools
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._end_task()
        finally:
            await self._stack.__aexit__(kind, error, trace)
            self._opened = None

    @property
    def id(self) -> str:
        """For `resume`, and for `sandbox-agent diff`, `apply`, `undo` and `fork`."""
        return self._engine.id

    @property
    def record(self) -> Path:
        """The file with everything that happened."""
        return sessions_dir() / self.id / EVENTS_FILE

    @property
    def result(self) -> Result:
        """What the last task came to, with what is known of the changes.

        Raises:
            RuntimeError: none has ended yet.
        """
        finished, started = self._summary.finished, self._summary.started
        if finished is None or started is None:
            raise RuntimeError("no task of this session has ended yet")
        return Result(
            session_id=started.session_id,
            status=self._summary.status,
            text=finished.text,
            error=self._summary.error,
            turns=finished.turns,
            usage=finished.usage,
            cost_usd=finished.cost_usd,
            model_usage=finished.model_usage,
            structured_output=finished.structured_output,
            duration_s=finished.duration_s,
            record=sessions_dir() / started.session_id / EVENTS_FILE,
            denials=finished.denials,
            changes=self._changes or (),
            applied=tuple(self._outcome.applied),
            unapplied=tuple(self._summary.unapplied_files),
            conflicts=dict(self._outcome.conflicts),
            checks=tuple(self._summary.checks),
        )

    def run(self, task: str) -> AsyncGenerator[Event, None]:
        """Do a task; yields every event as it happens, `RunFinished` last. Leaving the loop early interrupts it.

        Faults of the model and of the sandbox end the task with their status; they are not raised.

        Raises:
            ValueError: the task is empty.
            RuntimeError: another task is under way, or the changes were asked for already.
        """
        if not task.strip():
            raise ValueError("the task is empty")
        return self._run(task)

    async def ask(self, task: str) -> Result:
        """Do a task to its end. Raises what `run` raises."""
        async for _ in self.run(task):
            pass
        return self.result

    def send(self, text: str, when: When = "next") -> None:
        """Say something to the agent while it works; with no task under way it waits for the next one.

        Raises:
            ValueError: the text is empty, or `when` is something else.
        """
        if when not in get_args(When):
            raise ValueError(f"when is one of {', '.join(get_args(When))}, not {when!r}")
        self._engine.queue.put(text, Priority[when.upper()])

    def interrupt(self) -> None:
        """End the task under way: its open calls are told, and it finishes with the status interrupted."""
        self._engine.interrupt()

    async def changes(self) -> tuple[Change, ...]:
        """What the session changed, compared with the folder. Closes the container, so no task can follow, and runs the
        checks that were asked for.

        Raises:
            SandboxError: the container could not be started; nobody had waited for it so far.
            WorkspaceError: the folder is gone.
        """
        if self._changes is None:
            await self._end_task()
            await acceptance.ready(self._engine, self._config)
            self._changes = await self._engine.changes()
            if self._config.checks:
                await acceptance.check(self._engine, self._config)
            self._hear()
        return self._changes

    async def apply(self, paths: Collection[str] | None = None) -> ApplyOutcome:
        """Bring changes to the folder.

        Args:
            paths: those of these paths, or below these folders. None is all but links, which go only when their own
                path is given.

        Returns:
            ApplyOutcome: with a reason for each that could not go; a file that somebody changed meanwhile is never
                overwritten.

        Raises:
            WorkspaceError: the folder is gone, or a path is not among the changes.
            SandboxError: see `changes`.
        """
        await self.changes()
        self._outcome = await self._engine.apply(paths)
        self._hear()
        return self._outcome

    @property
    def _engine(self) -> engine.Session:
        if self._opened is None:
            raise RuntimeError(_NOT_OPEN)
        return self._opened

    async def _run(self, task: str) -> AsyncGenerator[Event, None]:
        session = self._engine
        if self._changes is not None:
            raise RuntimeError("the changes were asked for, which closed the container; go on with resume=session.id")
        await self._end_task()
        self._idle = idle = anyio.Event()
        try:
            async with aclosing(run(session, task)) as events:
                self._under_way = weakref.ref(events)
                async for event in events:
                    self._summary.feed(event)
                    yield event
        finally:
            idle.set()

    async def _end_task(self) -> None:
        """Interrupt a task whose events nobody reads any more."""
        left = self._under_way() if self._under_way is not None else None
        if left is not None:
            try:
                await left.aclose()
            except RuntimeError as exc:
                raise RuntimeError("another task of this session is under way: wait for its end") from exc
        elif not self._idle.is_set():
            # Its generator was thrown away: asyncio is about to close it.
            await self._idle.wait()

    def _hear(self) -> None:
        """Take in what the session said outside a task."""
        with self._engine.listen() as events:
            while True:
                try:
                    event = events.receive_nowait()
                except anyio.WouldBlock:
                    break
                self._summary.feed(event)
                self._aside.append(event)
        self._engine.hang_up()

    def heard(self) -> tuple[Event, ...]:
        """What was said outside a task since this was last asked: the events of `changes` and `apply`."""
        aside, self._aside = tuple(self._aside), []
        return aside
