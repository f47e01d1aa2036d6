"""Removing what one sandbox made on the engine, where somebody else may be at removing it at the same time."""

from __future__ import annotations

import contextlib

import anyio
import docker.errors

from sandbox_agent.sandboxes.engine import Engine

REMOVAL_S = 10.0
REMOVAL_LOOK_S = 0.05


async def remove_container(engine: Engine, container_id: str) -> None:
    """End and remove a container; one that is gone already is no error. Raises docker's APIError."""
    try:
        await engine.ask(engine.control.remove_container, container_id, v=True, force=True)
    except docker.errors.NotFound:
        pass
    except docker.errors.APIError as exc:
        if exc.status_code != 409:
            raise
        # Its removal is in progress already; its volume can go only when that is over.
        with anyio.move_on_after(REMOVAL_S), contextlib.suppress(docker.errors.NotFound):
            while True:
                await engine.ask(engine.control.inspect_container, container_id)
                await anyio.sleep(REMOVAL_LOOK_S)


async def remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume; one that is gone already is no error. Raises docker's APIError."""
    try:
        await engine.ask(engine.control.remove_volume, name)
    except docker.errors.APIError as exc:
        # 409 while the engine is still at removing the container; `reap` sees it again when we have ended.
        if exc.status_code not in (404, 409):
            raise
