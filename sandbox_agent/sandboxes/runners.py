"""The life of the resident runner: start it, and when it has died clear up after it and start the next one.

The runner lives at the tools' uid, so a command can kill it. Then every open call gets an error that says so, every
process of that uid is killed, and only after that a new runner is started, for the next call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import anyio

from sandbox_agent.errors import SandboxDiedError, SandboxUnavailableError
from sandbox_agent.sandboxes.calls import Call, ResolveCall
from sandbox_agent.sandboxes.connection import Channel, Connection, RunnerGoneError
from sandbox_agent.sandboxes.program import INTERPRETERS, command, source

CallT = TypeVar("CallT", bound=Call)

START_ATTEMPTS = 3
END_ALL_S = 5.0
RESTARTED = "could not be started, so the container was started again, and /tmp and the home folder are empty now"
KILLED = 137
"""Exit code of what ended with the runner."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a clearing found: how many processes the memory limit has killed since the container started, None if that
    is not known; and whether memory was used up before it began."""

    oom_kills: int | None = None
    memory_was_full: bool = False


class Container(Protocol):
    """What the runner needs of the container it lives in."""

    async def open_program(self, argv: Sequence[str]) -> Channel:
        """Start a program at the tools' uid, stdin and stdout attached. Raises SandboxDiedError."""
        ...

    async def clear(self) -> Cleared:
        """Kill every process of the tools' uid, by any means. Raises SandboxDiedError."""
        ...

    async def restart(self) -> None:
        """Start the container again, with nothing in it that lay in memory. Raises SandboxDiedError."""
        ...

    async def raise_if_dead(self) -> None:
        """Raises SandboxDiedError if the container does not run."""
        ...


class NoRunnerError(Exception):
    """No runner can run in this image; the text says why."""


class Runners:
    """The runner that lives, and the next one when it has died. `connect` first."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._connection: Connection | None = None
        self._changing = anyio.Lock()
        self._interpreter = INTERPRETERS[0]
        self._closed = False
        self._death: SandboxDiedError | None = None
        self.restarts = 0
        self.oom_told = False
        """Whether a call has reported a kill by the memory limit since the last clearing, so that it is known."""
        self._oom_kills = 0

    async def connect(self) -> str:
        """Start the first runner; returns a line about it.

        Raises:
            NoRunnerError: the image has no Python that can run it.
            SandboxDiedError: the container ended.
        """
        reasons: list[str] = []
        async with self._changing:
            for interpreter in INTERPRETERS:
                try:
                    self._connection = await self._started(interpreter)
                except RunnerGoneError as exc:
                    await self._container.raise_if_dead()
                    reasons.append(f"{interpreter}: {exc}")
                    continue
                self._interpreter = interpreter
                return f"Python {self._connection.version}, {interpreter}"
        raise NoRunnerError("; ".join(reasons))

    async def aclose(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.aclose()

    @asynccontextmanager
    async def call(self, call: CallT, deadline_s: float | None) -> AsyncIterator[tuple[Connection, int, CallT]]:
        """One call on a living runner. It is over when this is left, whatever the reason."""
        connection = await self.living()
        number = connection.add(call)
        try:
            with anyio.move_on_after(deadline_s) as scope:
                try:
                    yield connection, number, call
                finally:
                    if scope.cancel_called and not call.finished:
                        connection.give_up("did not report a call in time")
                    await connection.drop(number)
            if scope.cancelled_caught:
                raise RunnerGoneError(connection.gone)
        except RunnerGoneError as exc:
            await self.recover(connection)
            raise RunnerGoneError(connection.gone, out_of_memory=connection.out_of_memory) from exc

    async def living(self) -> Connection:
        """The runner that lives, a new one if the last has died.

        Raises:
            RunnerGoneError: a new one did not start, several times; after the container was started again one did.
            SandboxDiedError: the container has ended.
        """
        if self._connection is not None and self._connection.gone is None:
            return self._connection
        if self._connection is not None:
            await self.recover(self._connection)
        async with self._changing:
            if self._connection is not None and self._connection.gone is None:
                return self._connection
            self._raise_if_over()
            self.restarts += 1
            for _ in range(START_ATTEMPTS):
                try:
                    self._connection = await self._started(self._interpreter)
                except (RunnerGoneError, SandboxUnavailableError):
                    await self._clear()
                else:
                    return self._connection
            await self._start_anew()
            raise RunnerGoneError(RESTARTED)

    async def _start_anew(self) -> None:
        """No process is in the way of a runner: files in /tmp may have used all memory up. Not silent, for they go."""
        await self._container.restart()
        self._oom_kills, self.oom_told = 0, False
        self._connection = await self._started(self._interpreter)

    async def _started(self, interpreter: str) -> Connection:
        connection = Connection(await self._container.open_program(command(interpreter)))
        try:
            await connection.start(source())
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def end_all(self, spare: int | None) -> None:
        """Kill every process of the tools' uid: the runner does it (some 5 ms), or is killed with them (some 150 ms).

        `spare` is the number of a call that may live on, if it is one of the runner that lives.

        Raises:
            SandboxDiedError: the container has ended.
        """
        try:
            async with self.call(ResolveCall(0), END_ALL_S) as (connection, number, call):
                await connection.request(number, {"op": "end_all", "spare": spare, "eof": True}, b"")
                await connection.wait(number)
                if call.failure is not None:
                    connection.give_up("did not end everything")
                    raise RunnerGoneError(connection.gone)
        except RunnerGoneError:
            return  # everything was cleared away after it

    async def recover(self, connection: Connection) -> None:
        """The runner is gone: see whether the container is, and clear away what may still run in it.

        Raises:
            SandboxDiedError: the container has ended.
        """
        with anyio.CancelScope(shield=True):
            async with self._changing:
                self._raise_if_over()
                if self._connection is connection:
                    await connection.aclose()
                    connection.out_of_memory = await self._clear()
                    self._connection = None

    async def _clear(self) -> bool:
        """True when the memory limit killed something that no call has told of."""
        try:
            await self._container.raise_if_dead()
            found = await self._container.clear()
        except SandboxDiedError as exc:
            self._death = exc
            raise
        kills = found.oom_kills or 0
        news = found.memory_was_full or (kills > self._oom_kills and not self.oom_told)
        self._oom_kills, self.oom_told = kills, False
        return news

    def _raise_if_over(self) -> None:
        if self._death is not None:
            raise self._death
        if self._closed:
            raise SandboxDiedError("the sandbox is closed")
