"""A container beside the session's, for one MCP server: as hardened, with a network list and a workspace of its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.engine import egress
from sandbox_agent.engine.late import LateSandbox
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxError
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.sandboxes.base import Sandbox, Stream
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.types import WORKSPACE_MOUNT, EmptyMount, WorkspaceMount


@dataclass(frozen=True, slots=True)
class Ground:
    """What such containers are made from: the session's own, its settings, and where it keeps its state."""

    sandbox: LateSandbox
    spec: SandboxSpec
    settings: SandboxSettings
    endpoint: Endpoint
    folder: Path
    environ: Mapping[str, str]


class OwnContainer:
    """The container of one server. Nothing is made before the server is first started."""

    def __init__(self, session: Session, server: McpServer, ground: Ground, number: int) -> None:
        self._session = session
        self._server = server
        self._ground = ground
        self._number = number
        self._sandbox: LateSandbox | None = None
        self._folder: Path | None = None

    async def open(self) -> Stream:
        """Start the server's program in it; the container is made the first time, and anew after it was lost.

        Raises:
            SandboxStartError, SandboxUnavailableError: it cannot be made.
            ConfigError: its list of hosts cannot be used.
        """
        if self._sandbox is None:
            self._sandbox = await self._made()
        try:
            await self._sandbox.start()
            return await self._sandbox.open(self._server.command, env=self._server.env)
        except SandboxError:
            lost, self._sandbox = self._sandbox, None
            await lost.close()
            raise

    async def close(self) -> None:
        """Remove it, and its folder. Shielded, bounded, safe to call twice."""
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._folder is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(shutil.rmtree, self._folder, ignore_errors=True))

    async def _made(self) -> LateSandbox:
        ground, server = self._ground, self._server
        settings = replace(ground.settings, allow_hosts=server.allow_hosts)
        way_out = await egress.prepare(settings, environ=ground.environ, workspace=self._session.workspace.host)
        folder = self._folder = ground.folder / f"mcp-{self._number}"
        await anyio.to_thread.run_sync(lambda: folder.mkdir(mode=0o700, exist_ok=True))
        workspace = await self._workspace()
        # Known once the session's container has started, for which the workspace waits.
        covers = () if server.workspace == "none" else self._session.workspace.covers
        spec = replace(
            ground.spec,
            image=server.image or ground.settings.image,
            workspace_source=workspace,
            session_id=f"{ground.spec.session_id}-mcp-{self._number}",
            state_dir=None if ground.spec.state_dir is None else str(folder),
            egress_env=way_out.env if way_out is not None else {},
            masks=tuple(f"{WORKSPACE_MOUNT}/{path}" for path in covers),
        )

        async def make() -> Sandbox:
            module = await anyio.to_thread.run_sync(registry.load, "sandboxes", "docker")
            sandbox: Sandbox = module.create(spec, ground.endpoint)
            return sandbox

        async def nothing_beside() -> None:
            return

        if way_out is not None:
            self._session.tasks.start_soon(way_out.serve, self._session)
        return LateSandbox(make, beside=nothing_beside, after=way_out.open if way_out is not None else None)

    async def _workspace(self) -> WorkspaceMount:
        if self._server.workspace == "none":
            return EmptyMount()
        return await self._ground.sandbox.share(read_only=self._server.workspace == "ro")
