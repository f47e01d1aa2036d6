"""Removing what a session left behind whose owner has died. Called at every start and by `sandbox-agent reap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine, reach
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_SESSION, is_dead
from sandbox_agent.sandboxes.toolbox import LABEL_TOOLBOX, toolbox_name
from sandbox_agent.sandboxes.volumes import LABEL_KEPT


async def reap(endpoint: Endpoint) -> list[str]:
    """Remove every container, network and volume of ours whose owner has ended; returns what was removed.

    Raises:
        SandboxUnavailableError: the engine does not answer.
    """
    engine = await reach(endpoint)
    try:
        return await reap_dead(engine) + await _old_toolboxes(engine)
    finally:
        engine.close()


async def _old_toolboxes(engine: Engine) -> list[str]:
    """Remove the toolboxes that were made from another image than ours is now, or in another way."""
    only = {"label": LABEL_TOOLBOX}
    found = (await engine.ask(engine.control.volumes, filters=only)).get("Volumes") or []
    try:
        current = await toolbox_name(engine) if found else ""
    except SandboxUnavailableError:
        return []
    names = [str(volume["Name"]) for volume in found if volume["Name"] != current]
    return [f"volume {name}" for name in names if await _gone(engine, engine.control.remove_volume, name)]


async def reap_dead(engine: Engine) -> list[str]:
    """The same on an engine that is at hand."""
    return await _remove(engine, LABEL_OWNER, _abandoned)


def _abandoned(labels: Mapping[str, str]) -> bool:
    return LABEL_KEPT not in labels and is_dead(labels.get(LABEL_OWNER, ""))


async def remove_all(endpoint: Endpoint, session_id: str) -> list[str]:
    """Remove everything of one session, whoever owns it, kept work too; returns what was removed.

    Raises:
        SandboxUnavailableError: the engine does not answer.
    """
    engine = await reach(endpoint)
    try:
        return await _remove(engine, f"{LABEL_SESSION}={session_id}", lambda _: True)
    finally:
        engine.close()


async def _remove(engine: Engine, label: str, doomed: Any) -> list[str]:
    """Containers first: a network or volume in use cannot go."""
    control, only = engine.control, {"label": label}
    removed: list[str] = []
    for container in await engine.ask(control.containers, all=True, filters=only):
        if doomed(container["Labels"]):
            name = container["Names"][0].lstrip("/") if container["Names"] else container["Id"][:12]
            if await _gone(engine, control.remove_container, container["Id"], v=True, force=True):
                removed.append(f"container {name}")
    for network in await engine.ask(control.networks, filters=only):
        if doomed(network["Labels"]) and await _gone(engine, control.remove_network, network["Id"]):
            removed.append(f"network {network['Name']}")
    for volume in (await engine.ask(control.volumes, filters=only)).get("Volumes") or []:
        if doomed(volume["Labels"]) and await _gone(engine, control.remove_volume, volume["Name"]):
            removed.append(f"volume {volume['Name']}")
    return removed


async def _gone(engine: Engine, act: Any, *arguments: Any, **options: Any) -> bool:
    """Remove one; False where somebody else was quicker or it is still in use, which the next reap sees."""
    try:
        await engine.ask(act, *arguments, **options)
    except (docker.errors.NotFound, docker.errors.APIError) as exc:
        if exc.status_code in (404, 409):
            return False
        raise
    return True
