"""Started DockerSandboxes for the tests of the sandbox itself, with a look at them from outside."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread
import docker

from sandbox_agent.sandboxes.base import SandboxInfo
from sandbox_agent.sandboxes.docker import DockerSandbox, create
from sandbox_agent.sandboxes.endpoint import Endpoint, resolve_endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec

UID = os.getuid() or 1234


@dataclass(frozen=True, slots=True)
class Rig:
    """`workspace` is the host's side of /workspace; `client` is for what a test does behind the sandbox's back."""

    sandbox: DockerSandbox
    info: SandboxInfo
    workspace: Path
    client: docker.APIClient

    async def outside(self, argv: list[str], *, user: str = str(UID)) -> tuple[int, bytes]:
        """Run a program in the container past the sandbox: exit code and output."""
        return await anyio.to_thread.run_sync(self._outside, argv, user, abandon_on_cancel=True)

    async def start_outside(self, argv: list[str], *, user: str = str(UID)) -> None:
        """Start a program in the container past the sandbox, and leave it running."""
        made = await anyio.to_thread.run_sync(lambda: self.client.exec_create(self.info.id, argv, user=user))
        await anyio.to_thread.run_sync(lambda: self.client.exec_start(made["Id"], detach=True))

    async def until(self, name: str) -> None:
        """Wait until a command has made this file in the workspace."""
        await self.sandbox.exec(["bash", "-c", f"until [ -e {name} ]; do sleep 0.01; done"], timeout_s=30)

    async def inspect(self) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(self.client.inspect_container, self.info.id)

    def _outside(self, argv: list[str], user: str) -> tuple[int, bytes]:
        made = self.client.exec_create(self.info.id, argv, user=user)
        output = self.client.exec_start(made["Id"])
        return int(self.client.exec_inspect(made["Id"])["ExitCode"]), output


def endpoint() -> Endpoint:
    return resolve_endpoint(os.environ)


def spec(folder: Path, **changes: Any) -> SandboxSpec:
    """A spec on a fresh workspace in `folder` that belongs to the tools' user."""
    workspace, state = folder / "workspace", folder / "state"
    for place in (workspace, state):
        place.mkdir(exist_ok=True)
    os.chown(workspace, UID, UID)
    fields: dict[str, Any] = {
        "workspace_source": str(workspace),
        "uid": UID,
        "gid": UID,
        "session_id": f"test-{secrets.token_hex(6)}",
        "state_dir": str(state),
    }
    return SandboxSpec(**{**fields, **changes})


@asynccontextmanager
async def rig(folder: Path, *, transport: Literal["auto", "exec"] = "auto", **changes: Any) -> AsyncIterator[Rig]:
    """A started sandbox, removed at the end."""
    wanted = spec(folder, transport=transport, **changes)
    sandbox = create(wanted, endpoint())
    client = docker.APIClient(base_url=endpoint().url, version="auto")
    try:
        info = await sandbox.start()
        yield Rig(sandbox, info, Path(wanted.workspace_source), client)
    finally:
        await sandbox.close()
        client.close()
