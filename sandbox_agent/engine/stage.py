"""What a session stands on: its view of the folder, and the container that will start beside everything else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.filling import fill
from sandbox_agent.engine.forking import fork_origin
from sandbox_agent.engine.gitmasks import leave_to_git
from sandbox_agent.engine.late import LateSandbox
from sandbox_agent.engine.placement import Placement, place
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.folder import resolve
from sandbox_agent.workspaces.masks import masking_rule
from sandbox_agent.workspaces.opening import create, reopen
from sandbox_agent.workspaces.record import RECORD_NAME, Record
from sandbox_agent.workspaces.volume import VolumeWorkspace


def stands_on(folder: Path) -> Path | None:
    """What a session that goes on works on, whatever folder the run names; None where it kept no workspace.

    Raises:
        WorkspaceError: what it kept cannot be read.
    """
    if (folder / RECORD_NAME).exists():
        return Record.load(folder).host
    origin = fork_origin(folder)
    return origin.host if origin is not None else None


async def open_workspace(
    config: RunConfig, policy: Policy, folder: Path, endpoint: Endpoint
) -> tuple[Workspace, Placement | None]:
    """The session's view of the folder: the one it left behind where it is resumed and something was kept, else new.

    Raises:
        WorkspaceError: the folder cannot be used, or not in this mode.
        SandboxUnavailableError: see `placement.place`.
    """
    view = viewer(folder.name, endpoint)
    if (folder / RECORD_NAME).exists():
        return await anyio.to_thread.run_sync(partial(reopen, folder, view=view)), None
    origin = await anyio.to_thread.run_sync(fork_origin, folder)
    if origin is not None:
        volume = volume_name(folder) if origin.in_volume else ""
        make = partial(create, origin.mode, origin.host, folder, masks=origin.masks, view=view, volume=volume)
        known = await place(origin.mode, origin.host, endpoint, policy.sandbox.image)
        make = partial(make, disk_bytes=policy.sandbox.disk_bytes, own_disk=known.own_disk)
        return await anyio.to_thread.run_sync(partial(make, engine=endpoint.url)), None
    host = await anyio.to_thread.run_sync(resolve, config.workspace, folder)
    placement = await place(config.workspace_mode, host, endpoint, config.image or policy.sandbox.image)
    volume = volume_name(folder) if placement.in_volume else ""
    make = partial(create, placement.mode, host, folder, masks=policy.sandbox.masks, view=view, volume=volume)
    make = partial(make, disk_bytes=policy.sandbox.disk_bytes, own_disk=placement.own_disk)
    return await anyio.to_thread.run_sync(partial(make, engine=endpoint.url)), placement


def volume_name(folder: Path) -> str:
    """Of the engine's volume that holds a session's copy."""
    return f"sandbox-agent-{folder.name}-workspace"


def mask_of(workspace: Workspace, path: str) -> str | None:
    """The mask rule that hides a resolved container path, None if none does."""
    below = path.removeprefix(WORKSPACE_MOUNT + "/")
    return masking_rule(workspace.masked, below) if below != path else None


def late_sandbox(
    spec: SandboxSpec,
    endpoint: Endpoint,
    workspace: Workspace,
    opened: Callable[[Sandbox], Coroutine[Any, Any, None]] | None = None,
    secrecy: Secrecy | None = None,
) -> LateSandbox:
    """The container and the workspace are made ready side by side, as far as the one need not wait for the other.

    `opened` is done with the container once it runs, before any verb. `secrecy` is a session's, which learns what is
    masked before that, and whose git is told of it.
    """
    prepared = anyio.Event()
    if secrecy is not None:
        secrecy.expect()

    async def prepare() -> None:
        try:
            await anyio.to_thread.run_sync(workspace.prepare)
            prepared.set()
            if secrecy is not None:
                await secrecy.learn(workspace)
        finally:
            if secrecy is not None:
                secrecy.give_up()

    async def make() -> Sandbox:
        # In a thread: importing the engine's clients costs 0.5 s, and the first model request must not wait for that.
        module = await anyio.to_thread.run_sync(registry.load, "sandboxes", "docker")
        if workspace.mount_waits:
            await prepared.wait()
        covers = tuple(f"{WORKSPACE_MOUNT}/{path}" for path in workspace.covers)
        sandbox: Sandbox = module.create(replace(spec, masks=covers), endpoint)
        return sandbox

    async def after(sandbox: Sandbox) -> None:
        if isinstance(workspace, VolumeWorkspace):
            await fill(sandbox, workspace=workspace)
            if secrecy is not None:
                await secrecy.learn(workspace)
        await prepared.wait()
        if secrecy is not None:
            await leave_to_git(sandbox, workspace)
        if opened is not None:
            await opened(sandbox)

    return LateSandbox(make, beside=prepare, after=after)
