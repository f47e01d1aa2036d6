"""`sandbox_agent.run`: one task on one folder, from nothing to the end, as a stream of events or as its result."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Generator
from typing import Any, Literal, Unpack

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from sandbox_agent.embedding.options import Options
from sandbox_agent.embedding.result import Result
from sandbox_agent.embedding.session import Session, When
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import Event

Apply = Literal["never", "always"]

_ENDED_BY_ITSELF = ("done", "denied", "limit", "failed")
"""After any other end nobody knows what state the changes are in: they are kept, and not applied."""


def run(task: str, *, apply: Apply = "never", **options: Unpack[Options]) -> Run:
    """Give an agent a task on a folder.

    Nothing starts before the run is iterated or awaited:

        async for event in sandbox_agent.run("Make the tests pass", workspace="project"): ...
        result = await sandbox_agent.run("Make the tests pass", workspace="project")

    Args:
        task: what to do.
        apply: what becomes of the changes: "never" keeps them for `sandbox-agent apply`, "always" brings them to the
            folder where the task came to an end and every check passed.
        options: see `Options`.

    Raises:
        ValueError: the task is empty, or `apply` is something else.
        ConfigError: an option has a value that it cannot have.
    """
    if not task.strip():
        raise ValueError("the task is empty")
    if apply not in ("never", "always"):
        raise ValueError(f'apply is "never" or "always", not {apply!r}')
    return Run(task, apply, Session(**options))


class Run:
    """A run that goes once: iterate it for its events, or await it for its `result`.

    Leaving the iteration early, or cancelling who iterates or awaits, interrupts the run and removes the container.
    Faults before the run could begin are raised, see `Session.__aenter__`; those of the model and the sandbox end it
    with their status.
    """

    def __init__(self, task: str, apply: Apply, session: Session) -> None:
        self._task = task
        self._apply = apply
        self._session = session
        self._begun = False
        self._result: Result | None = None
        self._scope = anyio.CancelScope()

    @property
    def result(self) -> Result:
        """What it came to.

        Raises:
            RuntimeError: it has not ended.
        """
        if self._result is None:
            raise RuntimeError("the run has not ended")
        return self._result

    def send(self, text: str, when: When = "next") -> None:
        """Say something to the agent while it works, see `Session.send`."""
        self._session.send(text, when)

    def interrupt(self) -> None:
        """End the task; the run goes on to the review of what was changed."""
        self._session.interrupt()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        if self._begun:
            raise RuntimeError("a run goes once; call sandbox_agent.run again for another")
        self._begun = True
        return self._events()

    def __await__(self) -> Generator[Any, None, Result]:
        return self._to_the_end().__await__()

    async def _to_the_end(self) -> Result:
        async for _ in self:
            pass
        return self.result

    async def _events(self) -> AsyncGenerator[Event, None]:
        """The session lives in a task of its own, and not in this generator: whoever leaves the loop early has the
        generator closed by another task, in which nothing that was entered here could be left."""
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        owner = asyncio.create_task(self._own(send))
        try:
            with receive:
                async for event in receive:
                    yield event
            await owner
        finally:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([owner])
            if not owner.cancelled():
                owner.exception()  # raised above already, or of a run that nobody waits for

    async def _own(self, send: MemoryObjectSendStream[Event]) -> None:
        with self._scope, send:
            async with self._session as session:
                async for event in session.run(self._task):
                    send.send_nowait(event)
                await self._review(session)
                if (
                    self._apply == "always"
                    and session.result.status in _ENDED_BY_ITSELF
                    and all(one.passed for one in session.result.checks)
                ):
                    await session.apply()
                for event in session.heard():
                    send.send_nowait(event)
                self._result = session.result

    async def _review(self, session: Session) -> None:
        try:
            await session.changes()
        except SandboxAgentError:
            # A sandbox that never came up has nothing to compare; that is what the result says.
            if session.result.status != "sandbox_error":
                raise
