"""`DockerSandbox`: one hardened container for a session, with the resident runner in it, or an exec per call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import docker.errors

import sandbox_agent
from sandbox_agent.errors import SandboxDiedError, SandboxStartError, SandboxUnavailableError
from sandbox_agent.sandboxes import podman
from sandbox_agent.sandboxes.apart import Apart
from sandbox_agent.sandboxes.base import (
    DEFAULT_MAX_OUTPUT_BYTES,
    ExecResult,
    FileContent,
    PathInfo,
    SandboxInfo,
    Stream,
)
from sandbox_agent.sandboxes.cleaner import have_volume
from sandbox_agent.sandboxes.container import Life, RunningContainer
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine, Streams, allowed_nofile, reach
from sandbox_agent.sandboxes.exec_stream import ExecStream
from sandbox_agent.sandboxes.facts import why_refused
from sandbox_agent.sandboxes.hardening import create_body, write_etc_files
from sandbox_agent.sandboxes.images import Image, find_image
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_SESSION, LABEL_VERSION, is_dead, this_process
from sandbox_agent.sandboxes.owners import give_back
from sandbox_agent.sandboxes.perexec import PerExec
from sandbox_agent.sandboxes.reap import reap_dead
from sandbox_agent.sandboxes.removal import remove_container, remove_volume
from sandbox_agent.sandboxes.resident import Resident
from sandbox_agent.sandboxes.runners import NoRunnerError, Runners
from sandbox_agent.sandboxes.spec import APART_UID, MAIN_UID, SandboxSpec
from sandbox_agent.sandboxes.toolbox import toolbox_for
from sandbox_agent.sandboxes.volumes import overlay_name
from sandbox_agent.types import OverlayMount, SharedMount, VolumeMount, WorkspaceMount

CLOSE_S = 20.0
PREDECESSOR_LOOKS = 100
PREDECESSOR_LOOK_S = 0.1

_CPUS = re.compile(r"Range of CPUs is from [0-9.]+ to ([0-9.]+)")
"""What the engine says to a limit of more processors than its machine has."""


class DockerSandbox:
    """See `Sandbox`. Made by `create`."""

    def __init__(self, spec: SandboxSpec, endpoint: Endpoint) -> None:
        self.spec = spec
        self.endpoint = endpoint
        self._engine: Engine | None = None
        self._streams: Streams | None = None
        self._container_id: str | None = None
        self._volume = overlay_name(spec.session_id) if isinstance(spec.workspace_source, OverlayMount) else ""
        self._verbs: Resident | PerExec | None = None
        self._apart: Apart | None = None
        self._life = Life()
        self._as_user: Callable[[str], RunningContainer]
        self._reaped = ""
        self._notes: tuple[str, ...] = ()
        self._closed = False
        self._closing = anyio.Lock()
        self._making = anyio.Lock()

    async def start(self) -> SandboxInfo:
        """See `Sandbox.start`. What a dead owner left on the engine is removed at the same time."""
        try:
            return await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> SandboxInfo:
        engine = self._engine = await reach(self.endpoint)
        image = await find_image(engine, self.spec.image)
        await self._end_predecessor(engine)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._reap, engine)
                await self._create(engine, image)
        except* (SandboxStartError, SandboxUnavailableError) as group_error:
            raise group_error.exceptions[0] from None
        streams = self._streams = engine.streams()
        made = self._container_id or ""
        self._as_user = lambda user: RunningContainer(engine, streams, made, user, self.spec.pids, self._life)
        container = self._as_user(f"{self.spec.uid}:{self.spec.gid}")
        transport, about = await self._open_transport(container)
        self._apart = Apart(lambda: self._as_user(f"{APART_UID}:{self.spec.gid}"), resident=transport == "runner")
        return self._info(image, transport, about)

    def share(self, *, read_only: bool) -> WorkspaceMount:
        """Its workspace for another container, which must not outlive it."""
        match self.spec.workspace_source:
            case OverlayMount():
                return SharedMount(self._volume, is_volume=True, read_only=read_only)
            case VolumeMount(name=name):
                return SharedMount(name, is_volume=True, read_only=read_only)
            case str() as folder:
                return SharedMount(folder, is_volume=False, read_only=read_only)
            case other:
                return other

    @property
    def restarts(self) -> int:
        """See `Sandbox.restarts`."""
        return self._life.restarts

    async def restart(self) -> None:
        """Kill the container and start it again, with nothing in it that lay in memory.

        Raises:
            SandboxDiedError: it did not come up again.
            SandboxUnavailableError: the engine refuses.
        """
        self._transport()
        await self._as_user(f"{self.spec.uid}:{self.spec.gid}").restart()

    async def end_all(self, *, spare: Stream | None = None) -> None:
        """See `Sandbox.end_all`."""
        await self._transport().end_all(spare=spare)

    async def give_back(self, owners: Mapping[str, tuple[int, int]]) -> None:
        """See `Sandbox.give_back`."""
        self._transport()
        if self._engine is not None and self._container_id is not None:
            await give_back(self._engine, self._container_id, owners, self._labels())

    async def open_as_main(self, argv: Sequence[str]) -> ExecStream:
        """Start a program of ours as the container's main user, which the tools can neither end nor trace."""
        self._transport()
        return await self._as_user(f"{MAIN_UID}:{MAIN_UID}").open_program(argv)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
            async with self._closing:
                self._closed = True
                for programs in (self._apart, self._verbs):
                    if programs is not None:
                        await programs.aclose()
                if self._streams is not None:
                    await self._streams.aclose()
                # Whoever closes need not be who starts: a container that is just being made is waited for, and goes.
                async with self._making:
                    if self._engine is not None:
                        await self._remove(self._engine)
                        self._engine.close()
                        self._engine = None

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
        return await self._transport().exec(
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

    async def exec_apart(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """See `Sandbox.exec_apart`."""
        self._transport()
        assert self._apart is not None
        return await self._apart.exec(argv, stdin=stdin, timeout_s=timeout_s, max_output_bytes=max_output_bytes)

    async def open(
        self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Stream:
        """See `Sandbox.open`."""
        return await self._transport().open(argv, cwd=cwd, env=env)

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        """See `Sandbox.resolve`."""
        return await self._transport().resolve(paths)

    async def read_file(
        self, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.read_file`."""
        return await self._transport().read_file(path, offset=offset, limit_bytes=limit_bytes, resolved=resolved)

    async def replace_file(
        self, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
    ) -> FileContent:
        """See `Sandbox.replace_file`."""
        return await self._transport().replace_file(path, data, expected_sha256=expected_sha256, resolved=resolved)

    def _transport(self) -> Resident | PerExec:
        if self._closed or self._verbs is None:
            raise SandboxDiedError("the sandbox is closed" if self._closed else "the sandbox has not been started")
        return self._verbs

    async def _reap(self, engine: Engine) -> None:
        """What cannot be removed must not keep this session from starting; it is told instead."""
        try:
            self._reaped = ", ".join(await reap_dead(engine))
        except docker.errors.APIError as exc:
            self._reaped = f"failed: {exc.explanation}"

    async def _end_predecessor(self, engine: Engine) -> None:
        """A session that was killed may have left its container, at the same folder: it goes before ours comes."""
        for _ in range(PREDECESSOR_LOOKS):
            try:
                found = await engine.ask(engine.control.inspect_container, self._name())
            except docker.errors.NotFound:
                return
            if not is_dead(found["Config"]["Labels"].get(LABEL_OWNER, "")):
                raise SandboxStartError(f"the session {self.spec.session_id} has a container of a living process")
            await self._reap(engine)
            await anyio.sleep(PREDECESSOR_LOOK_S)  # somebody else may be at removing it, and that takes its time
        raise SandboxStartError(f"the container that session {self.spec.session_id} left cannot be removed")

    async def _create(self, engine: Engine, image: Image) -> None:
        """Create and start; once more with what the engine can give, where it has fewer processors, or may not set the
        limit on descriptors."""
        nofile: int | None = await anyio.to_thread.run_sync(allowed_nofile, self.endpoint, self.spec.nofile)
        while True:
            try:
                await self._create_once(engine, image, nofile)
                return
            except docker.errors.APIError as exc:
                said = str(exc.explanation)
                fewer = _CPUS.search(said)
                if fewer is not None and 0 < float(fewer[1]) < self.spec.cpus:
                    self._notes += (
                        f"{self.spec.cpus:g} processors are allowed, and the engine has {float(fewer[1]):g}",
                    )
                    self.spec = replace(self.spec, cpus=float(fewer[1]))
                elif nofile is not None and "rlimit" in said:
                    nofile = None
                else:
                    raise SandboxStartError(await why_refused(engine, exc, self.spec.runtime)) from exc
                await self._remove(engine)

    async def _create_once(self, engine: Engine, image: Image, nofile: int | None) -> None:
        labels, toolbox = self._labels(), await toolbox_for(engine, image)
        try:
            etc = write_etc_files(self.spec)
        except OSError as exc:
            raise SandboxStartError(f"cannot write the sandbox's files to {self.spec.state_dir}: {exc}") from exc
        if isinstance(self.spec.workspace_source, VolumeMount):
            owner, helper = f"{self.spec.uid}:{self.spec.gid}", image if toolbox is None else toolbox.base
            await have_volume(engine, helper.id, self.spec.workspace_source, owner, labels)
        body = create_body(self.spec, image=image, etc=etc, labels=labels, nofile=nofile, volume=self._volume)
        if engine.podman:
            podman.adapt(engine, body, self.spec.state_dir)
        if toolbox is not None:
            toolbox.put_in(body)
        # Shielded: a container that is being made when we are cancelled must be known, to be removed.
        with anyio.CancelScope(shield=True):
            async with self._making:
                if self._closed:
                    raise SandboxStartError("the sandbox was closed before it had started")
                answer: dict[str, Any] = await engine.ask(
                    engine.control.create_container_from_config, body, self._name()
                )
                self._container_id = made = str(answer["Id"])
        if toolbox is not None:
            await toolbox.make_sure(engine, made)
        await engine.ask(engine.control.start, self._container_id)

    def _labels(self) -> dict[str, str]:
        ours = {LABEL_SESSION: self.spec.session_id, LABEL_OWNER: this_process().label()}
        return {**self.spec.labels, **ours, LABEL_VERSION: sandbox_agent.__version__}

    def _name(self) -> str:
        return f"sandbox-agent-{self.spec.session_id}"

    async def _open_transport(self, container: RunningContainer) -> tuple[str, str]:
        """The runner, else one exec per call; and a line about it."""
        about = "asked for"
        if self.spec.transport == "auto":
            runners = Runners(container)
            try:
                about = await runners.connect()
            except NoRunnerError as exc:
                about = f"the image runs no runner: {exc}"
            else:
                self._verbs = Resident(runners)
                return "runner", about
        self._verbs = PerExec(container)
        return "exec", about

    def _info(self, image: Image, transport: str, about: str) -> SandboxInfo:
        spec, network = self.spec, "network by the gate only" if self.spec.egress_env else "no network"
        kept = f"seccomp {spec.seccomp}, no capabilities, read-only root, {network}, uid {spec.uid}"
        isolation = f"{spec.runtime or 'default runtime'}, {kept}"
        details = {"endpoint": str(self.endpoint), "image_id": image.id, "transport": about, "reaped": self._reaped}
        made = self._container_id or ""
        return SandboxInfo(made, image.name, isolation, transport, spec.uid, spec.gid, details, self._notes)

    async def _remove(self, engine: Engine) -> None:
        if self._container_id is not None:
            await remove_container(engine, self._container_id)
            self._container_id = None
        if self._volume:
            await remove_volume(engine, self._volume)


def create(spec: SandboxSpec, endpoint: Endpoint) -> DockerSandbox:
    """A sandbox that is not started yet."""
    return DockerSandbox(spec, endpoint)
