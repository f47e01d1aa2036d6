"""Chores that take root, each in a short-lived container with no network and just the right it needs.

The kernel's own folder in an overlay belongs to root with mode 000: for a person who is not root it is removed by a
container that sees the one folder of the session's state. A new volume of the engine belongs to root: the top of it is
given to the tools before they come. A third one is in `owners`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import docker.errors

import sandbox_agent
from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine, reach
from sandbox_agent.sandboxes.images import find_image
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_SESSION, LABEL_VERSION, this_process
from sandbox_agent.sandboxes.volumes import plain_volume
from sandbox_agent.types import VolumeMount

_PLACE = "/left"
_PRIVATE = {"Propagation": "rprivate"}


async def empty_folder(endpoint: Endpoint, folder: Path, *, session_id: str, image: str = "base") -> None:
    """Remove everything in a folder of our own state.

    Raises:
        SandboxUnavailableError: no engine, or not this image.
        SandboxStartError: the engine refuses, or something could not be removed.
    """
    engine = await reach(endpoint)
    try:
        found = await find_image(engine, image)
        try:
            # Links are not followed, and /left itself is the mount. The globs are for everything, dotted names too.
            command = ["sh", "-c", f"rm -rf -- {_PLACE}/* {_PLACE}/.[!.]* {_PLACE}/..?*"]
            mount = {"Type": "bind", "Source": str(folder), "Target": _PLACE, "BindOptions": _PRIVATE}
            labels = {
                LABEL_SESSION: session_id,
                LABEL_OWNER: this_process().label(),
                LABEL_VERSION: sandbox_agent.__version__,
            }
            code = await run_to_end(engine, body_of(found.id, command, ["DAC_OVERRIDE", "FOWNER"], mount, labels))
        except docker.errors.APIError as exc:
            raise SandboxStartError(f"{folder}: the engine does not start what would clear it: {exc}") from exc
        if code != 0:
            raise SandboxStartError(f"{folder}: could not be cleared (exit code {code})")
    finally:
        engine.close()


async def have_volume(engine: Engine, image_id: str, mount: VolumeMount, owner: str, labels: dict[str, str]) -> None:
    """A volume for a workspace, its top folder given to somebody, "uid:gid"; one that is filled must be there already.

    Raises:
        SandboxStartError: the engine refuses, or the image has no chown, or has not the volume that is filled.
    """
    if mount.filled:
        await _find_volume(engine, mount.name)
        return
    entry = plain_volume(mount, labels)
    command = ["chown", owner, entry["Target"]]
    try:
        code = await run_to_end(engine, body_of(image_id, command, ["CHOWN"], entry, labels))
    except docker.errors.APIError as exc:
        raise SandboxStartError(f"the engine does not make the workspace's volume: {exc.explanation}") from exc
    if code != 0:
        raise SandboxStartError(f"the workspace's volume cannot be given to {owner} (exit code {code})")


async def _find_volume(engine: Engine, name: str) -> None:
    try:
        await engine.ask(engine.control.inspect_volume, name)
    except docker.errors.NotFound:
        raise SandboxStartError(
            f"the volume {name}, which holds the workspace, is not on the engine at {engine.endpoint}: it was removed "
            "there, or the session began on another engine, which DOCKER_HOST must name"
        ) from None


async def run_to_end(engine: Engine, body: dict[str, Any]) -> int:
    """Run a container of a body to its end and remove it; returns its exit code. Raises docker's APIError."""
    control, code = engine.control, -1
    # Shielded: a container that is being made when we are cancelled must be known, to be removed.
    with anyio.CancelScope(shield=True):
        made: dict[str, Any] = await engine.ask(control.create_container_from_config, body)
        try:
            await engine.ask(control.start, made["Id"])
            code = int((await engine.ask(control.wait, made["Id"]))["StatusCode"])
        finally:
            await engine.ask(control.remove_container, made["Id"], v=True, force=True)
    return code


def body_of(
    image_id: str, command: list[str], rights: list[str], mount: dict[str, Any], labels: dict[str, str]
) -> dict[str, Any]:
    """The create body of a chore: root with these rights alone, one mount, no network."""
    return {
        "Image": image_id,
        "User": "0:0",
        "Entrypoint": [],
        "Cmd": command,
        "NetworkDisabled": True,
        "Labels": labels,
        "HostConfig": {
            "CapDrop": ["ALL"],
            "CapAdd": rights,
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "PidsLimit": 16,
            "Memory": 256 * MIB,
            "MemorySwap": 256 * MIB,
            "LogConfig": {"Type": "none"},
            "Mounts": [mount],
        },
    }
