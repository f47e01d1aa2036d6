"""`doctor`'s trials: one container as a session would get it, and `true` in it; and one mount of the workspace."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

from sandbox_agent.cli.checks import Check
from sandbox_agent.cli.egress_check import try_forwarder
from sandbox_agent.cli.host_checks import check_inside
from sandbox_agent.config import state_dir
from sandbox_agent.engine.placement import AUTO, Placement, place
from sandbox_agent.errors import SandboxAgentError, WorkspaceError
from sandbox_agent.frontends import words
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.base import ExecResult, SandboxInfo
from sandbox_agent.sandboxes.docker import create
from sandbox_agent.sandboxes.egress.outlet import Plan
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.inspection import deviations
from sandbox_agent.sandboxes.reap import remove_all
from sandbox_agent.sandboxes.seccomp.profile import SeccompProfile
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.types import VolumeMount, WorkspaceMount
from sandbox_agent.workspaces.folder import resolve

TRIAL_UID = 65532
"""Tools never run as 0, whoever asks."""


async def try_sandbox(
    engine: Engine, settings: SandboxSettings, *, gate: Plan | None = None, in_volume: bool = False
) -> list[Check]:
    """Start, run, attack a little, remove; the container is gone afterwards whatever happened.

    Args:
        engine: where.
        settings: what the policy asks for: image, runtime and filter are looked at.
        gate: of a session's way out, where it has one.
        in_volume: the engine sees no file of this machine.
    """
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-doctor-") as parent:
        spec = replace(_spec(Path(parent), settings, in_volume), egress_env=gate.env if gate is not None else {})
        sandbox = create(spec, engine.endpoint)
        started = time.monotonic()
        try:
            info = await sandbox.start()
            ready_s = time.monotonic() - started
            forwarder = [await try_forwarder(sandbox, gate)] if gate is not None else []
            result = await sandbox.exec(["bash", "-c", "true"], timeout_s=10)
            reached = await check_inside(sandbox)
            changed = await deviations(engine, info.id)
        except SandboxAgentError as exc:
            return [Check("sandbox", "fail", str(exc))]
        finally:
            await sandbox.close()
            if in_volume:
                await remove_all(engine.endpoint, sandbox.spec.session_id)
        return [*_checks(info, result, ready_s), _as_asked(changed), *forwarder, *reached]


def _as_asked(changed: list[str]) -> Check:
    if changed:
        todo = "look for a plug-in or a default of the engine that changes containers"
        return Check("as-asked", "fail", f"the engine made the container otherwise: {'; '.join(changed)}", todo)
    return Check("as-asked", "ok", "the engine made the container as it was asked to")


def _spec(parent: Path, settings: SandboxSettings, in_volume: bool) -> SandboxSpec:
    name, uid, gid = f"doctor{time.time_ns():x}", os.getuid() or TRIAL_UID, os.getgid() or TRIAL_UID
    if in_volume:
        mount = VolumeMount(f"sandbox-agent-{name}")
        return replace(_plain_spec(settings, mount, uid, gid, name), state_dir=None)
    folder, state = parent / "workspace", parent / "state"
    folder.mkdir()
    state.mkdir()
    if os.getuid() == 0:
        os.chown(folder, uid, gid)
    return replace(_plain_spec(settings, str(folder), uid, gid, name), state_dir=str(state))


def _plain_spec(settings: SandboxSettings, mount: WorkspaceMount, uid: int, gid: int, name: str) -> SandboxSpec:
    return SandboxSpec(
        image=settings.image,
        runtime=settings.runtime,
        seccomp=cast(SeccompProfile, settings.seccomp),
        workspace_source=mount,
        uid=uid,
        gid=gid,
        session_id=name,
        state_dir=None,
    )


async def try_workspace(endpoint: Endpoint, image: str) -> tuple[list[Check], bool]:
    """Which workspace mode a run in the current folder gets, and how its disk limit is kept, by mounting what it would
    mount; whether in a volume."""
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-doctor-") as other:
        try:
            try:
                host = resolve(Path.cwd(), state_dir())
            except WorkspaceError:
                host = Path(other).resolve()
            placement = await place(AUTO, host, endpoint, image, fresh=True)
        except (SandboxAgentError, OSError) as exc:
            return [Check("workspace", "fail", str(exc))], False
    todo = "a run copies the folder first, which takes longer; nothing has to be done" if placement.why else None
    mode = Check("workspace", "warn" if placement.why else "ok", placement.line, todo)
    return [mode, _disk(placement)], placement.in_volume


def _disk(placement: Placement) -> Check:
    if placement.own_disk:
        return Check("disk", "ok", "a session writes to a disk of its own of the size of sandbox.disk")
    why = "the copy is in a volume of the engine" if placement.in_volume else placement.no_disk
    todo = "a call that takes more is stopped a moment later; to have it refused at once, run as root with loop devices"
    return Check("disk", "warn", f"sandbox.disk is watched only: {why}", todo)


def _checks(info: SandboxInfo, result: ExecResult, ready_s: float) -> list[Check]:
    took = f"ready in {words.duration(ready_s)}, a command in {words.duration(result.duration_s)}"
    if result.exit_code != 0:
        said = f"`bash -c true` ended with {result.exit_code} in the container"
        return [Check("sandbox", "fail", said, "check the image")]
    checks = [Check("sandbox", "ok", took), Check("isolation", "ok", info.isolation)]
    if info.transport == "runner":
        checks.append(Check("transport", "ok", f"the resident runner: {info.details.get('transport', '')}"))
    else:
        text = "one Docker exec per call (the runner could not start): slower, the isolation is the same"
        todo = "no checkpoints then: use an image with python3, or have ours on the engine (`make setup`)"
        checks.append(Check("transport", "warn", text, todo))
    return checks
