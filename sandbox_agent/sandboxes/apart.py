"""Programs in the session's container that are not the tools': another user, an empty environment, a runner of its own.

The tools can neither kill nor trace what runs here, nor read its memory; the files it runs they can change, where they
lie in the workspace. The runner is started with the first call: most sessions make none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.sandboxes.container import RunningContainer
from sandbox_agent.sandboxes.perexec import PerExec
from sandbox_agent.sandboxes.program import TOOLBOX
from sandbox_agent.sandboxes.resident import Resident
from sandbox_agent.sandboxes.runners import NoRunnerError, Runners

APART_ENV = (f"PATH=/usr/local/bin:/usr/bin:/bin:{TOOLBOX}/bin", "LANG=C.UTF-8", "HOME=/tmp")
"""All that such a program finds in its environment."""

_EMPTIED = ("env", "-i")
_EMPTIED_BUT_FOR_THE_MARK = ("sh", "-c", 'exec env -i "SANDBOX_AGENT_CALL=$SANDBOX_AGENT_CALL" "$@"', "sh")
"""Without a runner, what a program leaves behind is known by this variable."""


class Apart:
    """Carries out `Sandbox.exec_apart`."""

    def __init__(self, make: Callable[[], RunningContainer], *, resident: bool) -> None:
        """`make` gives the container with the user that programs are to run as."""
        self._make = make
        self._resident = resident
        self._verbs: Resident | PerExec | None = None
        self._starting = anyio.Lock()

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float | None, max_output_bytes: int
    ) -> ExecResult:
        """See `Sandbox.exec_apart`."""
        verbs = await self._transport()
        emptied = _EMPTIED if isinstance(verbs, Resident) else _EMPTIED_BUT_FOR_THE_MARK
        command = [*emptied, *APART_ENV, *argv]
        try:
            return await verbs.exec(command, stdin=stdin, timeout_s=timeout_s, max_output_bytes=max_output_bytes)
        except PermissionError:  # a workspace that only its owner may enter
            return await verbs.exec(
                command, stdin=stdin, cwd="/", timeout_s=timeout_s, max_output_bytes=max_output_bytes
            )

    async def aclose(self) -> None:
        """End the runner."""
        if self._verbs is not None:
            await self._verbs.aclose()

    async def _transport(self) -> Resident | PerExec:
        async with self._starting:
            if self._verbs is None:
                self._verbs = await self._opened(self._make())
            return self._verbs

    async def _opened(self, container: RunningContainer) -> Resident | PerExec:
        if self._resident:
            runners = Runners(container)
            try:
                await runners.connect()
            except NoRunnerError:
                return PerExec(container)
            return Resident(runners)
        return PerExec(container)
