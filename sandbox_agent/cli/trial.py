"""`doctor`'s trials: one container as a session would get it, and `true` in it; and one mount of the workspace."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from sandbox_agent.cli.checks import Check
from sandbox_agent.config import state_dir
from sandbox_agent.engine.placement import AUTO, place
from sandbox_agent.errors import SandboxAgentError, WorkspaceError
from sandbox_agent.frontends import words
from sandbox_agent.sandboxes.base import ExecResult, SandboxInfo
from sandbox_agent.sandboxes.docker import create
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.folder import resolve

TRIAL_UID = 65532
"""Tools never run as 0, whoever asks."""


async def try_sandbox(endpoint: Endpoint, image: str) -> list[Check]:
    """Start, run, remove; the container is gone afterwards whatever happened."""
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-doctor-") as parent:
        folder, state = Path(parent) / "workspace", Path(parent) / "state"
        folder.mkdir()
        state.mkdir()
        uid = os.getuid() or TRIAL_UID
        gid = os.getgid() or TRIAL_UID
        if os.getuid() == 0:
            os.chown(folder, uid, gid)
        spec = SandboxSpec(
            image=image,
            workspace_source=str(folder),
            uid=uid,
            gid=gid,
            session_id=f"doctor{time.time_ns():x}",
            state_dir=str(state),
        )
        sandbox = create(spec, endpoint)
        started = time.monotonic()
        try:
            info = await sandbox.start()
            ready_s = time.monotonic() - started
            result = await sandbox.exec(["true"], timeout_s=10)
        except SandboxAgentError as exc:
            return [Check("sandbox", "fail", str(exc))]
        finally:
            await sandbox.close()
        return _checks(info, result, ready_s)


async def try_workspace(endpoint: Endpoint, image: str) -> Check:
    """Which workspace mode a run in the current folder gets, by mounting what it would mount."""
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-doctor-") as other:
        try:
            try:
                host = resolve(Path.cwd(), state_dir())
            except WorkspaceError:
                host = Path(other).resolve()
            placement = await place(AUTO, host, endpoint, image, fresh=True)
        except (SandboxAgentError, OSError) as exc:
            return Check("workspace", "fail", str(exc))
    todo = "a run copies the folder first, which takes longer; nothing has to be done" if placement.why else None
    return Check("workspace", "warn" if placement.why else "ok", placement.line, todo)


def _checks(info: SandboxInfo, result: ExecResult, ready_s: float) -> list[Check]:
    took = f"ready in {words.duration(ready_s)}, a command in {words.duration(result.duration_s)}"
    if result.exit_code != 0:
        return [Check("sandbox", "fail", f"`true` ended with {result.exit_code} in the container", "check the image")]
    checks = [Check("sandbox", "ok", took), Check("isolation", "ok", info.isolation)]
    if info.transport == "runner":
        checks.append(Check("transport", "ok", "the resident runner"))
    else:
        text = "one Docker exec per call (the runner could not start): slower, the isolation is the same"
        checks.append(Check("transport", "warn", text, "use an image with python3, as images/base"))
    return checks
