"""Ours: the product's DockerSandbox with the options a session gets. `--exec` forces the per-call fallback."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.protocol import Contender, Finished, WrongResult, serve
from sandbox_agent.sandboxes.docker import DockerSandbox, create
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.folder import owner_of


class Ours(Contender):
    """The resident runner, hardened; a new sandbox at each start."""

    forced_exec = False
    sandbox: DockerSandbox

    def __init__(self, host_data: str) -> None:
        super().__init__(host_data)
        self._endpoint = resolve_endpoint(os.environ)
        self._owner = owner_of(Path(host_data))
        self._state = tempfile.TemporaryDirectory(prefix="sandbox-agent-bench-")

    async def start(self) -> None:
        """Done when the sandbox says it is ready, by the transport that is measured."""
        self.sandbox = create(self._spec(), self._endpoint)
        transport = (await self.sandbox.start()).transport
        wanted = "exec" if self.forced_exec else "runner"
        if transport != wanted:
            await self.sandbox.close()
            raise WrongResult(f"the sandbox came up with the transport {transport!r}, not {wanted!r}")

    async def stop(self) -> None:
        """Done when the container is removed."""
        await self.sandbox.close()

    async def run(self, argv: Sequence[str]) -> Finished:
        """One command."""
        done = await self.sandbox.exec(argv)
        return Finished(done.exit_code, done.stdout)

    async def read(self, path: str) -> bytes:
        """One file."""
        return (await self.sandbox.read_file(path)).data

    def _spec(self) -> SandboxSpec:
        session_id = f"bench-{secrets.token_hex(6)}"
        state_dir = Path(self._state.name, session_id)
        state_dir.mkdir()
        return SandboxSpec(
            workspace_source=self.host_data,
            uid=self._owner.uid,
            gid=self._owner.gid,
            session_id=session_id,
            state_dir=str(state_dir),
            transport="exec" if self.forced_exec else "auto",
        )


class OursByExec(Ours):
    """One Docker exec a call, as where the runner cannot live."""

    forced_exec = True


if __name__ == "__main__":
    serve(OursByExec if "--exec" in sys.argv else Ours)
