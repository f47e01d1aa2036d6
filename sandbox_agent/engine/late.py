"""What a start has to wait for, beside each other: a sandbox whose verbs wait for it, and a model that is imported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from sandbox_agent.engine import metering
from sandbox_agent.errors import SandboxAgentError, SandboxUnavailableError
from sandbox_agent.models.base import Model
from sandbox_agent.sandboxes.base import (
    DEFAULT_MAX_OUTPUT_BYTES,
    ExecResult,
    FileContent,
    PathInfo,
    Sandbox,
    SandboxInfo,
    Stream,
)
from sandbox_agent.types import WorkspaceMount


@runtime_checkable
class Shareable(Protocol):
    """A sandbox whose workspace another container can have, too."""

    def share(self, *, read_only: bool) -> WorkspaceMount:
        """What the other one is to mount."""
        ...


class LateSandbox:
    """Passes every verb on to the sandbox that `make` gives, once that one has started and `beside` is done.

    `beside` runs at the same time as the start (filling the folder that is mounted), `after` once it has started and
    before any verb. `start` may be called any number of times: the first call starts, all wait for the same outcome.
    What `exec` runs is counted for the call that runs it.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Sandbox]],
        beside: Callable[[], Coroutine[Any, Any, None]],
        after: Callable[[Sandbox], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._make = make
        self._beside = beside
        self._after = after
        self._begun = False
        self._settled = anyio.Event()
        self._target: Sandbox | None = None
        self._info: SandboxInfo | None = None
        self.fault: SandboxAgentError | None = None

    async def start(self) -> SandboxInfo:
        """See `Sandbox.start`; also raises whatever `make` and `beside` raise."""
        if not self._begun:
            self._begun = True
            await self._start()
        await self._settled.wait()
        if self.fault is not None:
            raise self.fault
        if self._info is None:
            raise SandboxUnavailableError("the sandbox was closed before it had started")
        return self._info

    async def _start(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._beside)
                self._target = await self._make()
                info = await self._target.start()
                if self._after is not None:
                    await self._after(self._target)
                self._info = info
        except* SandboxAgentError as faults:
            self.fault = _first(faults)
        finally:
            self._settled.set()

    @property
    def restarts(self) -> int:
        """See `Sandbox.restarts`."""
        return self._target.restarts if self._target is not None else 0

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """See `Sandbox.end_all`."""
        await (await self._ready()).end_all(spare=spare)

    async def give_back(self, owners: Mapping[str, tuple[int, int]]) -> None:
        """See `Sandbox.give_back`."""
        await (await self._ready()).give_back(owners)

    async def share(self, *, read_only: bool) -> WorkspaceMount:
        """Its workspace for another container, once it has started.

        Raises:
            SandboxUnavailableError: this back end has nothing to share.
        """
        target = await self._ready()
        if not isinstance(target, Shareable):
            raise SandboxUnavailableError("the workspace of this sandbox cannot be shared with another container")
        return target.share(read_only=read_only)

    async def close(self) -> None:
        """See `Sandbox.close`; a start that is under way must have been cancelled before."""
        self._begun = True
        self._settled.set()
        if self._target is not None:
            await self._target.close()

    async def _ready(self) -> Sandbox:
        await self.start()
        assert self._target is not None
        return self._target

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        merge_stderr: bool = False,
        spill_path: str | None = None,
        live_path: str | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        ended = await (await self._ready()).exec(
            argv,
            stdin=stdin,
            cwd=cwd,
            env=env,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            merge_stderr=merge_stderr,
            spill_path=spill_path,
            live_path=live_path,
        )
        metering.count(ended)
        return ended

    async def exec_apart(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """See `Sandbox.exec_apart`."""
        return await (await self._ready()).exec_apart(
            argv, stdin=stdin, timeout_s=timeout_s, max_output_bytes=max_output_bytes
        )

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Stream:
        """See `Sandbox.open`."""
        return await (await self._ready()).open(argv, cwd=cwd, env=env)

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        """See `Sandbox.resolve`."""
        return await (await self._ready()).resolve(paths)

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.read_file`."""
        return await (await self._ready()).read_file(path, offset=offset, limit_bytes=limit_bytes, resolved=resolved)

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.replace_file`."""
        return await (await self._ready()).replace_file(path, data, expected_sha256=expected_sha256, resolved=resolved)


class LoadingModel:
    """A model while its SDK is imported, which takes over a second of CPU."""

    def __init__(self, make: Callable[[], Model]) -> None:
        self._make = make
        self._done = anyio.Event()
        self._model: Model | None = None
        self._fault: SandboxAgentError | None = None

    async def load(self) -> None:
        """Import and make it, in a thread that is abandoned when the start fails: a fault is told in milliseconds."""
        try:
            self._model = await anyio.to_thread.run_sync(self._make, abandon_on_cancel=True)
        except SandboxAgentError as exc:
            self._fault = exc
        finally:
            self._done.set()

    async def loaded(self) -> Model:
        """The model; raises the `SandboxAgentError` that making it raised."""
        await self._done.wait()
        if self._fault is not None:
            raise self._fault
        assert self._model is not None
        return self._model


def _first(group: BaseExceptionGroup[SandboxAgentError]) -> SandboxAgentError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, SandboxAgentError)
    return found
