"""What an engine and an image say of themselves, for `doctor`. Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

import docker
from docker.errors import DockerException, ImageNotFound

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.endpoint import Endpoint

REQUEST_S = 10
"""For one request to the engine."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`seccomp` is False where the engine cannot filter system calls. `runtimes` are sorted."""

    version: str
    api_version: str
    platform: str
    rootless: bool
    userns_remap: bool
    seccomp: bool
    cgroup_version: str
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """`recipe` is the hash of what the image was built from, `base_source` where its base came from; None if unknown."""

    id: str
    size_bytes: int
    recipe: str | None
    base_source: str | None


def engine_facts(endpoint: Endpoint) -> EngineFacts:
    """Ask the engine.

    Raises:
        SandboxUnavailableError: it does not answer as an engine does.
    """
    try:
        client = _client(endpoint)
        try:
            info, version = client.info(), client.version()
        finally:
            client.close()
    except DockerException as exc:
        raise SandboxUnavailableError(f"the engine at {endpoint.url} did not say what it is: {exc}") from exc
    # Each option is "name=seccomp,profile=default" or just "name=rootless".
    options = {str(option).split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()}
    return EngineFacts(
        version=str(version.get("Version", "?")),
        api_version=str(version.get("ApiVersion", "?")),
        platform=f"{info.get('OSType', '?')}/{info.get('Architecture', '?')}",
        rootless="rootless" in options,
        userns_remap="userns" in options,
        seccomp="seccomp" in options,
        cgroup_version=str(info.get("CgroupVersion", "?")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
    )


def image_facts(endpoint: Endpoint, name: str) -> ImageFacts | None:
    """What the engine has under that name; None if nothing.

    Raises:
        SandboxUnavailableError: the engine does not answer.
    """
    try:
        client = _client(endpoint)
        try:
            attributes = client.images.get(name).attrs
        finally:
            client.close()
    except ImageNotFound:
        return None
    except DockerException as exc:
        raise SandboxUnavailableError(f"the engine at {endpoint.url} did not answer about {name}: {exc}") from exc
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    return ImageFacts(
        id=str(attributes["Id"]),
        size_bytes=int(attributes.get("Size", 0)),
        recipe=labels.get("sandbox-agent.recipe"),
        base_source=labels.get("sandbox-agent.base-source"),
    )


def _client(endpoint: Endpoint) -> docker.DockerClient:
    return docker.DockerClient(base_url=endpoint.url, timeout=REQUEST_S)
