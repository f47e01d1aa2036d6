"""Removes what the kernel leaves in an overlay's folder as root, for a person who is not root.

The kernel's own folder there belongs to root with mode 000, and a short-lived container removes it. That sees the one
folder of a session's state and nothing else, has no network, and of root's rights only the one to pass by modes.
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

_PLACE = "/left"


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
            code = await _run(engine, _body(found.id, folder, session_id))
        except docker.errors.APIError as exc:
            raise SandboxStartError(f"{folder}: the engine does not start what would clear it: {exc}") from exc
        if code != 0:
            raise SandboxStartError(f"{folder}: could not be cleared (exit code {code})")
    finally:
        engine.close()


async def _run(engine: Engine, body: dict[str, Any]) -> int:
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


def _body(image_id: str, folder: Path, session_id: str) -> dict[str, Any]:
    return {
        "Image": image_id,
        "User": "0:0",
        "Entrypoint": [],
        # Links are not followed, and /left itself is the mount. The globs are for everything, dotted names too.
        "Cmd": ["sh", "-c", f"rm -rf -- {_PLACE}/* {_PLACE}/.[!.]* {_PLACE}/..?*"],
        "NetworkDisabled": True,
        "Labels": {
            LABEL_SESSION: session_id,
            LABEL_OWNER: this_process().label(),
            LABEL_VERSION: sandbox_agent.__version__,
        },
        "HostConfig": {
            "CapDrop": ["ALL"],
            "CapAdd": ["DAC_OVERRIDE", "FOWNER"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "PidsLimit": 16,
            "Memory": 256 * MIB,
            "MemorySwap": 256 * MIB,
            "LogConfig": {"Type": "none"},
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": str(folder),
                    "Target": _PLACE,
                    "BindOptions": {"Propagation": "rprivate"},
                }
            ],
        },
    }
