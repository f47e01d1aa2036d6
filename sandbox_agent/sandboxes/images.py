"""Which local image a name means. Nothing is pulled: what runs is what somebody put there on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.spec import DEFAULT_IMAGE

LABEL_RECIPE = "sandbox-agent.recipe"
"""On the images of ours: a hash of what they were built from."""


@dataclass(frozen=True, slots=True)
class Image:
    """A local image. `id` is its content hash, so the name cannot come to mean something else meanwhile.

    `ours` is whether it was built by images/build.sh, or from such a one: then it has all that a sandbox needs.
    """

    name: str
    id: str
    ours: bool = True


async def find_image(engine: Engine, name: str) -> Image:
    """The local image of this name; "base" is ours.

    Raises:
        SandboxUnavailableError: there is none, with what to do.
    """
    full = DEFAULT_IMAGE if name in ("", "base") else name
    try:
        fields: dict[str, Any] = await engine.ask(engine.control.inspect_image, full)
    except docker.errors.NotFound as exc:
        remedy = "build it with `make setup`" if full == DEFAULT_IMAGE else f"get it with `docker pull {full}`"
        raise SandboxUnavailableError(
            f"the image {full} is missing on the engine at {engine.endpoint}; {remedy}"
        ) from exc
    labels = (fields.get("Config") or {}).get("Labels") or {}
    return Image(full, str(fields["Id"]), LABEL_RECIPE in labels)
