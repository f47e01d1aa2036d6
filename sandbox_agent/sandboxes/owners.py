"""Gives entries of a session's workspace back to their owners, which only root can, in a short-lived container.

It mounts what the session's running container has at /workspace, has no network, our own image, and of root's rights
two. It acts on the paths it is told of alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.cleaner import body_of, run_to_end
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.images import find_image
from sandbox_agent.sandboxes.spec import DEFAULT_IMAGE
from sandbox_agent.types import WORKSPACE_MOUNT

MAX_ARGUMENT_BYTES = 120_000
"""The kernel takes 128 KiB in one argument."""


async def give_back(
    engine: Engine, container_id: str, owners: Mapping[str, tuple[int, int]], labels: dict[str, str]
) -> None:
    """Give paths of a container's workspace to others.

    Args:
        engine: where the container is.
        container_id: of the session, running.
        owners: uid and gid by path, as the session sees them.
        labels: for the container that does it.

    Raises:
        SandboxUnavailableError: our image is not there.
        SandboxStartError: the engine refuses, or some could not be given.
    """
    image = await find_image(engine, DEFAULT_IMAGE)
    program = resources.files(__package__).joinpath("owning.py").read_text("utf-8")
    failed = 0
    try:
        mount = await _workspace(engine, container_id)
        for rows in _batches(owners):
            command = ["python3", "-I", "-S", "-c", program, WORKSPACE_MOUNT, rows]
            failed += await run_to_end(engine, body_of(image.id, command, ["CHOWN", "DAC_OVERRIDE"], mount, labels))
    except docker.errors.APIError as exc:
        raise SandboxStartError(f"the engine does not start what gives files to their owners: {exc}") from exc
    if failed:
        raise SandboxStartError("some could not be given to their owners")


async def _workspace(engine: Engine, container_id: str) -> dict[str, Any]:
    """The entry of a create body that mounts a container's workspace once more; the very same, not another of it."""
    found = await engine.ask(engine.control.inspect_container, container_id)
    for mount in found["Mounts"]:
        if mount["Destination"] == WORKSPACE_MOUNT:
            source = mount["Name"] if mount["Type"] == "volume" else mount["Source"]
            options = {"VolumeOptions": {"NoCopy": True}} if mount["Type"] == "volume" else {}
            return {"Type": mount["Type"], "Source": source, "Target": WORKSPACE_MOUNT, **options}
    raise SandboxStartError("the session's container has no workspace")


def _batches(owners: Mapping[str, tuple[int, int]]) -> list[str]:
    batches, rows, size = [], list[bytes](), 0
    for path, (uid, gid) in sorted(owners.items()):
        row = b"%d %d " % (uid, gid) + path.encode("utf-8", "surrogateescape")
        if rows and 2 * (size + len(row)) > MAX_ARGUMENT_BYTES:
            batches.append(b"\0".join(rows).hex())
            rows, size = [], 0
        rows.append(row)
        size += len(row) + 1
    return [*batches, b"\0".join(rows).hex()] if rows else batches
