"""A started DockerSandbox on a folder of its own, and the tool calls made in it, for the tests of tools."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox_agent.sandboxes.base import MIB, Sandbox
from sandbox_agent.sandboxes.docker import create
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.testing.tool_calls import call, context, refused, said
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.types import ToolResult


@dataclass(frozen=True, slots=True)
class ToolBox:
    """`workspace` is the host's side of /workspace."""

    sandbox: Sandbox
    workspace: Path

    def fresh(self) -> ToolContext:
        """A context that knows nothing yet."""
        return context(self.sandbox)

    async def bash(self, command: str, ctx: ToolContext | None = None, **fields: object) -> ToolResult:
        return await call(BASH, ctx or self.fresh(), {"command": command, **fields})

    async def make(self, script: str) -> None:
        """Run a script that must succeed, to set things up."""
        await said(BASH, self.fresh(), command=f"set -e\n{script}")


@asynccontextmanager
async def started(
    folder: Path, *, memory_bytes: int = 2048 * MIB, transport: Literal["auto", "exec"] = "auto"
) -> AsyncIterator[ToolBox]:
    """A sandbox whose workspace and state lie in `folder`; its tools' user owns the workspace."""
    workspace, state = folder / "workspace", folder / "state"
    workspace.mkdir()
    state.mkdir()
    uid, gid = (os.getuid(), os.getgid()) if os.getuid() else (1234, 1234)
    os.chown(workspace, uid, gid)
    spec = SandboxSpec(
        str(workspace),
        uid,
        gid,
        f"tools-{secrets.token_hex(4)}",
        str(state),
        memory_bytes=memory_bytes,
        transport=transport,
    )
    sandbox = create(spec, resolve_endpoint(os.environ))
    try:
        await sandbox.start()
        yield ToolBox(sandbox, workspace)
    finally:
        await sandbox.close()


__all__ = ["ToolBox", "call", "context", "refused", "said", "started"]
