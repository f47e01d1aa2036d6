"""What an engine and an image say of themselves, for `doctor`. Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.images import LABEL_RECIPE, Image


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`seccomp` is False where the engine cannot filter system calls. `runtimes` are sorted."""

    version: str
    platform: str
    rootless: bool
    userns_remap: bool
    seccomp: bool
    cgroup_version: str
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """`recipe` hashes what the image was built from, `base_source` is where its base came from; None if unknown."""

    size_bytes: int
    recipe: str | None
    base_source: str | None


async def engine_facts(engine: Engine) -> EngineFacts:
    """Ask the engine.

    Raises:
        SandboxUnavailableError: it does not answer, or refuses to say.
    """
    try:
        info = await engine.ask(engine.control.info)
    except docker.errors.APIError as exc:
        raise SandboxUnavailableError(f"the engine at {engine.endpoint} refuses to describe itself: {exc}") from exc
    # Each option is "name=seccomp,profile=default" or just "name=rootless".
    options = {str(option).split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()}
    return EngineFacts(
        version=str(info.get("ServerVersion", "?")),
        platform=f"{info.get('OSType', '?')}/{info.get('Architecture', '?')}",
        rootless="rootless" in options,
        userns_remap="userns" in options,
        seccomp="seccomp" in options,
        cgroup_version=str(info.get("CgroupVersion", "?")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
    )


async def image_facts(engine: Engine, image: Image) -> ImageFacts:
    """What is known of a local image.

    Raises:
        SandboxUnavailableError: the engine does not answer.
    """
    fields = await engine.ask(engine.control.inspect_image, image.id)
    labels = (fields.get("Config") or {}).get("Labels") or {}
    return ImageFacts(
        size_bytes=int(fields.get("Size", 0)),
        recipe=labels.get(LABEL_RECIPE),
        base_source=labels.get("sandbox-agent.base-source"),
    )
