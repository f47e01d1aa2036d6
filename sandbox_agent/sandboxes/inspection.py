"""Whether the engine made a container as it was asked to: a default or a plug-in of it may have changed something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine

_WANTED: Mapping[str, tuple[Any, ...]] = {
    "Privileged": (False,),
    "CapAdd": (None, []),
    "ReadonlyRootfs": (True,),
    "NetworkMode": ("none",),
    "PidMode": ("", "private"),
    "UTSMode": ("", "private"),
    "IpcMode": ("private",),
    "Devices": (None, []),
    "DeviceRequests": (None, []),
    "DeviceCgroupRules": (None, []),
    "VolumesFrom": (None, []),
    "Binds": (None, []),
    "PublishAllPorts": (False,),
}
_OF_PODMAN = ("Binds is", "IpcMode is 'shareable'", "capabilities are kept")
"""It shows each mount as a bind too, calls an IPC namespace shareable that nobody shares, and lists capabilities."""

_NEVER_MOUNTED = (
    "/",
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/etc",
    "/root",
    "/home",
    "/proc",
    "/sys",
    "/dev",
    "/boot",
)


async def deviations(engine: Engine, container_id: str) -> list[str]:
    """What the engine made otherwise than it was asked to; empty if nothing.

    Raises:
        SandboxUnavailableError: it does not say.
    """
    try:
        fields = await engine.ask(engine.control.inspect_container, container_id)
    except docker.errors.APIError as exc:
        raise SandboxUnavailableError(f"the engine does not say how the sandbox is: {exc.explanation}") from exc
    found = deviations_in(fields)
    return [one for one in found if not (engine.podman and one.startswith(_OF_PODMAN))]


def deviations_in(fields: Mapping[str, Any]) -> list[str]:
    """The same, of what `inspect` answers."""
    host: Mapping[str, Any] = fields.get("HostConfig") or {}
    found = [f"{name} is {host.get(name)!r}" for name, good in _WANTED.items() if host.get(name) not in good]
    options = [str(option) for option in host.get("SecurityOpt") or ()]
    if not any(option.startswith("no-new-privileges") and not option.endswith("false") for option in options):
        found.append("no-new-privileges is off")
    if not any(option.startswith("seccomp=") and option != "seccomp=unconfined" for option in options):
        found.append("the filter of system calls is not ours")
    if "ALL" not in [str(name).upper().removeprefix("CAP_") for name in host.get("CapDrop") or ()]:
        found.append("capabilities are kept")
    if str(fields.get("Config", {}).get("User", "")).split(":")[0] in ("", "0", "root"):
        found.append("the main process is root")
    for mount in fields.get("Mounts") or ():
        source = str(mount.get("Source", "")).rstrip("/") or "/"
        if mount.get("Type") == "bind" and (source in _NEVER_MOUNTED or source.endswith(".sock")):
            found.append(f"{source} is mounted at {mount.get('Destination')}")
    return found
