"""A running container of ours: programs at the tools' uid, ending them all, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiodocker.exceptions
import aiohttp
import anyio
import docker.errors

from sandbox_agent.errors import SandboxDiedError, SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine, Streams
from sandbox_agent.sandboxes.exec_stream import ExecStream, open_exec

CLEAR_S = 10.0
"""For one way of clearing, before the next stronger one is tried."""

CLEAR_ATTEMPTS = 2
SPARE_PIDS = 64
_CLEAR = """
exec 2>/dev/null
round=0
while [ $round -lt 2000 ]; do
    kill -9 -1
    left=
    for place in /proc/[0-9]*; do
        pid=${place#/proc/}
        [ "$pid" = $$ ] || { kill -0 "$pid" && left=$pid; }
    done
    [ -n "$left" ] || exit 0
    round=$((round + 1))
done
exit 1
"""
"""Builtins only: with the process limit reached nothing can be started. `kill -1` spares the shell that says it, and
its own success says nothing (it also counts those it may not kill); `kill -0` tells whom of our uid it left."""


class RunningContainer:
    """One container of a session, and the user its tools run as."""

    def __init__(self, engine: Engine, streams: Streams, container_id: str, user: str, pids: int) -> None:
        self.engine = engine
        self.id = container_id
        self.user = user
        self._pids = pids
        self._handle = streams.client.containers.container(container_id)
        self.cleared = 0
        self.restarted = 0

    async def open_program(self, argv: Sequence[str], *, stdin: bool = True, **options: Any) -> ExecStream:
        """Start a program at the tools' uid.

        Raises:
            SandboxDiedError: the container does not run.
            SandboxUnavailableError: the engine refuses for another reason.
        """
        try:
            return await open_exec(self._handle, argv, user=self.user, stdin=stdin, **options)
        except (aiodocker.exceptions.DockerError, aiohttp.ClientError, OSError) as exc:
            await self.raise_if_dead()
            raise SandboxUnavailableError(f"the engine does not start {argv[0]} in the sandbox: {exc}") from exc

    async def raise_if_dead(self) -> None:
        """Raises SandboxDiedError, with the reason, if the container does not run."""
        try:
            state = (await self.engine.ask(self.engine.control.inspect_container, self.id))["State"]
        except docker.errors.NotFound as exc:
            raise SandboxDiedError("the sandbox's container has been removed") from exc
        except docker.errors.APIError as exc:
            raise SandboxUnavailableError(f"the engine does not say how the sandbox is: {exc.explanation}") from exc
        if not state["Running"]:
            code, oom = int(state["ExitCode"]), bool(state["OOMKilled"])
            reason = "out of memory" if oom else "killed from outside" if code == 137 else "it ended"
            text = f"the sandbox's container is dead: {reason} (exit code {code})"
            raise SandboxDiedError(text, container_exit_code=code, oom_killed=oom)

    async def clear(self) -> None:
        """Kill every process of the tools' uid: by a kill inside; with room under the process limit, which a fork
        bomb has used up; and at last by killing and starting the container.

        Raises:
            SandboxDiedError: the container ended meanwhile.
        """
        self.cleared += 1
        for _ in range(CLEAR_ATTEMPTS):
            if await self._kill_all():
                return
        await self._limit_pids(self._pids + SPARE_PIDS)
        try:
            if await self._kill_all():
                return
        finally:
            await self._limit_pids(self._pids)
        await self._restart()

    async def _kill_all(self) -> bool:
        """True when no process of the uid is left."""
        with anyio.move_on_after(CLEAR_S):
            try:
                stream = await self.open_program(["sh", "-c", _CLEAR], stdin=False)
            except SandboxUnavailableError:
                return False
            try:
                await stream.receive()
                return await stream.exit_code() == 0
            finally:
                await stream.aclose()
        return False

    async def _limit_pids(self, number: int) -> None:
        control = self.engine.control
        url = f"{control.base_url}/v{self.engine.version}/containers/{self.id}/update"
        answer = await self.engine.ask(control.post, url, json={"PidsLimit": number}, timeout=CLEAR_S)
        if answer.status_code != 200:
            await self.raise_if_dead()

    async def _restart(self) -> None:
        self.restarted += 1
        control = self.engine.control
        try:
            await self.engine.ask(control.kill, self.id)
            await self.engine.ask(control.wait, self.id, timeout=CLEAR_S)
            await self.engine.ask(control.start, self.id)
        except docker.errors.APIError as exc:
            await self.raise_if_dead()
            raise SandboxUnavailableError(f"the engine does not restart the sandbox: {exc.explanation}") from exc
