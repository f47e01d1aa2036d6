"""A running container of ours: programs at the tools' uid, ending them all, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiodocker.exceptions
import aiohttp
import anyio
import docker.errors

from sandbox_agent.errors import SandboxDiedError, SandboxUnavailableError
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.engine import Engine, Streams
from sandbox_agent.sandboxes.exec_stream import ExecStream, open_exec
from sandbox_agent.sandboxes.runners import Cleared
from sandbox_agent.sandboxes.spec import MAIN_UID

CLEAR_S = 10.0
"""For one way of clearing, before the next stronger one is tried."""

CLEAR_ATTEMPTS = 2
SPARE_PIDS = 64
SPARE_MEMORY_BYTES = 64 * MIB
NARROW_ATTEMPTS = 20
NARROW_WAIT_S = 0.1
_MOST_DIGITS, _MOST_SAID_BYTES = 12, 1024
_KILLED = 137
_NO_EXEC = (aiodocker.exceptions.DockerError, aiohttp.ClientError, OSError)
_OOM_KILLS = """
exec 2>/dev/null
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    while read -r name count; do [ "$name" != oom_kill ] || echo "$count"; done < "$file"
done
"""
"""Prints how many processes the memory limit has killed since the container started, where the kernel tells."""

_CLEAR = (
    _OOM_KILLS
    + """
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
)
"""Builtins only: with the process limit reached nothing can be started. `kill -1` spares the shell that says it, and
its own success says nothing (it also counts those it may not kill); `kill -0` tells whom of our uid it left."""


class Life:
    """What all who use one container know of it together: how often it was started again, and whether it just is."""

    def __init__(self) -> None:
        self.restarts = 0
        self.restarting = anyio.Lock()


class RunningContainer:
    """One container of a session, and the user its tools run as."""

    def __init__(self, engine: Engine, streams: Streams, container_id: str, user: str, pids: int, life: Life) -> None:
        self.engine = engine
        self.id = container_id
        self.user = user
        self.life = life
        self._pids = pids
        self._handle = streams.client.containers.container(container_id)
        self.cleared = 0
        self._memory_bytes: int | None = None
        self._oom_kills: int | None = None

    async def open_program(self, argv: Sequence[str], *, stdin: bool = True, **options: Any) -> ExecStream:
        """Start a program at the tools' uid. One that meets a container which is just being started again waits for it.

        Raises:
            SandboxDiedError: the container does not run.
            SandboxUnavailableError: the engine refuses for another reason.
        """
        while True:
            restarts = self.life.restarts
            try:
                return await open_exec(self._handle, argv, user=self.user, stdin=stdin, **options)
            except _NO_EXEC as exc:
                await self.raise_if_dead()
                if self.life.restarts == restarts and not self.life.restarting.locked():
                    text = f"the engine does not start {argv[0]} in the sandbox: {exc}"
                    raise SandboxUnavailableError(text) from exc

    async def raise_if_dead(self) -> None:
        """Raises SandboxDiedError, with the reason, if the container does not run and is not just started again."""
        while True:
            async with self.life.restarting:
                restarts = self.life.restarts
            try:
                await self._raise_if_not_running()
                return
            except SandboxDiedError:
                if self.life.restarts == restarts:
                    raise

    async def _raise_if_not_running(self) -> None:
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

    async def clear(self) -> Cleared:
        """Kill every process of the tools' uid: by a kill inside; with room under the limits of processes and memory,
        which a bomb has used up; and at last by killing and starting the container.

        Raises:
            SandboxDiedError: the container ended meanwhile.
        """
        self.cleared += 1
        for _ in range(CLEAR_ATTEMPTS):
            if await self._kill_all():
                return Cleared(self._oom_kills)
        memory_bytes = await self._memory_limit()
        await self._limit(self._pids + SPARE_PIDS, memory_bytes and memory_bytes + SPARE_MEMORY_BYTES)
        found = None
        try:
            if not await self._kill_all():
                found = await self._why_not()
        finally:
            with anyio.CancelScope(shield=True):  # whoever gives up waiting must not leave the wider limits behind
                narrowed = await self._narrow(memory_bytes)
        if found is None and narrowed:
            return Cleared(self._oom_kills)
        await self.restart()
        if not narrowed and not await self._narrow(memory_bytes):
            raise SandboxDiedError("the container's limits could not be set back after it was cleared")
        return found or Cleared(self._oom_kills)

    async def _narrow(self, memory_bytes: int) -> bool:
        """Set the limits back; False if the engine never takes them. The kernel refuses a limit below what is in use,
        and what was just killed gives its memory back a moment later.
        """
        for _ in range(NARROW_ATTEMPTS):
            if await self._limit(self._pids, memory_bytes):
                return True
            await anyio.sleep(NARROW_WAIT_S)
        return False

    async def _kill_all(self) -> bool:
        """True when no process of the uid is left."""
        with anyio.move_on_after(CLEAR_S):
            try:
                stream = await self.open_program(["sh", "-c", _CLEAR], stdin=False)
            except SandboxUnavailableError:
                return False
            try:
                await self._note_oom_kills(stream)
                return await stream.exit_code() == 0
            finally:
                await stream.aclose()
        return False

    async def _memory_limit(self) -> int:
        """In bytes, 0 for none; as it was when it was first asked for, so that no wider one can stay."""
        if self._memory_bytes is None:
            try:
                about = await self.engine.ask(self.engine.control.inspect_container, self.id)
            except docker.errors.APIError:
                await self.raise_if_dead()
                raise
            self._memory_bytes = int(about["HostConfig"]["Memory"])
        return self._memory_bytes

    async def _why_not(self) -> Cleared:
        """Whether memory is used up. A shell that the tools cannot kill is killed then, too, or does not even start, of
        which the runtime says "possibly OOM-killed"; else it reads the kernel's count.
        """
        with anyio.move_on_after(CLEAR_S):
            try:
                stream = await open_exec(self._handle, ["sh", "-c", _OOM_KILLS], user=str(MAIN_UID), stdin=False)
            except _NO_EXEC:
                return Cleared()
            try:
                said = await self._note_oom_kills(stream)
                full = await stream.exit_code() == _KILLED or b"OOM-killed" in said
                return Cleared(self._oom_kills, memory_was_full=full)
            finally:
                await stream.aclose()
        return Cleared()

    async def _note_oom_kills(self, stream: ExecStream) -> bytes:
        """From what a script of ours prints, all of which is returned; hostile, where it runs at the tools' uid."""
        said = b""
        while data := await stream.receive():
            said = (said + data)[:_MOST_SAID_BYTES]
        if said.strip().isdigit() and len(said) <= _MOST_DIGITS:
            self._oom_kills = int(said)
        return said

    async def _limit(self, pids: int, memory_bytes: int) -> bool:
        control = self.engine.control
        url = f"{control.base_url}/v{self.engine.version}/containers/{self.id}/update"
        limits = {"PidsLimit": pids, "Memory": memory_bytes, "MemorySwap": memory_bytes}
        answer = await self.engine.ask(control.post, url, json=limits, timeout=CLEAR_S)
        if answer.status_code != 200:
            await self.raise_if_dead()
        return bool(answer.status_code == 200)

    async def restart(self) -> None:
        """Kill the container and start it again; all processes and all files in memory are gone afterwards. Where
        somebody else is at that already, it is waited for.

        Raises:
            SandboxDiedError: it did not come up again.
            SandboxUnavailableError: the engine refuses.
        """
        restarts = self.life.restarts
        # Shielded: a container that is killed and not started again would end the run.
        with anyio.CancelScope(shield=True):
            async with self.life.restarting:
                if self.life.restarts != restarts:
                    return
                self.life.restarts += 1
                self._oom_kills = None
                await self._start_again()

    async def _start_again(self) -> None:
        control = self.engine.control
        try:
            await self.engine.ask(control.kill, self.id)
            await self.engine.ask(control.wait, self.id, timeout=CLEAR_S)
            await self.engine.ask(control.start, self.id)
        except docker.errors.APIError as exc:
            await self._raise_if_not_running()
            raise SandboxUnavailableError(f"the engine does not restart the sandbox: {exc.explanation}") from exc
