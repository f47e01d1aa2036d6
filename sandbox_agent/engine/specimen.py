"""A session's container without a session: for tests of the sandbox itself, made by the code that makes every one."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent.config import RunConfig
from sandbox_agent.engine.container import spec_of
from sandbox_agent.engine.placement import Placement, trial_folder
from sandbox_agent.engine.stage import late_sandbox, open_workspace
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.base import Sandbox, SandboxInfo
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.disk import has_disk

_FILES = {
    "README.md": "A folder made by `sandbox-agent escape-test`; it is removed at the end.\n",
    ".env": "DECOY=not-a-secret\n",
    "nested/.env": "DECOY=not-a-secret\n",
    "nested/readme.txt": "x\n",
}
"""Among them files that every shipped policy masks."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """A started container as a session gets it. `own_disk`: its workspace is on a disk of the policy's size; else the
    engine watches, around the calls of a session, how much is taken."""

    sandbox: Sandbox
    info: SandboxInfo
    spec: SandboxSpec
    placement: Placement | None
    own_disk: bool


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder to be a workspace, with a few files, out of others' reach; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-escape-", ignore_cleanup_errors=True) as parent:
        folder = Path(parent).resolve() / f"workspace-{secrets.token_hex(4)}"
        for name, text in _FILES.items():
            place = folder / name
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            place.write_text(text)
            os.chmod(place, 0o644)
        yield folder


@asynccontextmanager
async def specimen(policy: Policy, host: Path, endpoint: Endpoint, *, mode: str = "auto") -> AsyncIterator[Specimen]:
    """A container on a folder, as a run under this policy would get it. Nothing of it is left afterwards.

    Raises:
        SandboxUnavailableError, SandboxStartError: it cannot be had.
        WorkspaceError: the folder cannot be used, or not in this mode.
    """
    async with trial_folder(endpoint, policy.sandbox.image) as folder:
        config = RunConfig(workspace=host, image=policy.sandbox.image, workspace_mode=mode)
        workspace, placement = await open_workspace(config, policy, folder, endpoint)
        spec = spec_of(workspace, folder, policy.sandbox)
        sandbox = late_sandbox(spec, endpoint, workspace)
        try:
            info = await sandbox.start()
            yield Specimen(sandbox, info, spec, placement, has_disk(folder))
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.close()
                await anyio.to_thread.run_sync(workspace.release)
