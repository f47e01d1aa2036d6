"""Which local image a name means. Nothing is pulled: what runs is what somebody put there on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.spec import DEFAULT_IMAGE

LABEL_RECIPE = "sandbox-agent.recipe"
"""On the images of ours: a hash of what they were built from."""

OURS: Mapping[str, str] = {"": DEFAULT_IMAGE, "base": DEFAULT_IMAGE, "dev": "sandbox-agent/dev:latest"}
"""What a policy calls our images, to their names on an engine."""

_HOW_TO_BUILD = {
    DEFAULT_IMAGE: "build it with `make setup`",
    OURS["dev"]: "build it with `make image-dev`",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A local image. `id` is its content hash, so the name cannot come to mean something else meanwhile.

    `ours` is whether it was built by images/build.sh, or from such a one: then it has all that a sandbox needs.
    `volumes` are the folders that it wants as volumes of their own, see `hardening.volume_tmpfs`; `env_names` are the
    variables that it sets.
    """

    name: str
    id: str
    ours: bool = True
    volumes: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()


async def find_image(engine: Engine, name: str) -> Image:
    """The local image of this name; "base" and "dev" are ours.

    Raises:
        SandboxUnavailableError: there is none, with what to do.
    """
    full = OURS.get(name, name)
    try:
        fields: dict[str, Any] = await engine.ask(engine.control.inspect_image, full)
    except docker.errors.NotFound as exc:
        remedy = _HOW_TO_BUILD.get(full, f"get it with `docker pull {full}`")
        raise SandboxUnavailableError(
            f"the image {full} is missing on the engine at {engine.endpoint}; {remedy}"
        ) from exc
    config = fields.get("Config") or {}
    volumes = tuple(sorted(config.get("Volumes") or ()))
    names = tuple(str(variable).partition("=")[0] for variable in config.get("Env") or ())
    return Image(full, str(fields["Id"]), LABEL_RECIPE in (config.get("Labels") or {}), volumes, names)
