"""What an engine and an image say of themselves, for `doctor`. Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import docker.errors

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.images import LABEL_RECIPE, Image


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`seccomp` is False where the engine cannot filter system calls. `runtimes` are sorted; `parts` are the engine's
    own (runc, containerd, ...) with their versions. `system` is what the engine says its machine is."""

    version: str
    platform: str
    rootless: bool
    userns_remap: bool
    seccomp: bool
    cgroup_version: str
    runtimes: tuple[str, ...]
    product: str = "Docker Engine"
    kernel: str = "?"
    system: str = ""
    default_runtime: str = "runc"
    apparmor: bool = False
    selinux: bool = False
    parts: tuple[tuple[str, str], ...] = ()

    def version_of(self, part: str) -> str | None:
        """Of a part of the engine, None where it does not say."""
        return next((version for name, version in self.parts if name == part), None)


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
        about = await engine.ask(engine.control.version)
    except docker.errors.APIError as exc:
        raise SandboxUnavailableError(f"the engine at {engine.endpoint} refuses to describe itself: {exc}") from exc
    return facts_from(info, about)


def facts_from(info: dict[str, Any], about: dict[str, Any]) -> EngineFacts:
    """The answers to /info and /version, read; what an engine leaves out counts as not there."""
    # Each option is "name=seccomp,profile=default" or just "name=rootless".
    options = {str(option).split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()}
    parts = tuple((str(part.get("Name", "?")), str(part.get("Version", "?"))) for part in about.get("Components") or ())
    podman = any(name == "Podman Engine" for name, _ in parts)
    return EngineFacts(
        version=str(info.get("ServerVersion", "?")),
        platform=f"{info.get('OSType', '?')}/{info.get('Architecture', '?')}",
        rootless="rootless" in options,
        userns_remap="userns" in options,
        seccomp="seccomp" in options,
        cgroup_version=str(info.get("CgroupVersion", "?")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        product="Podman" if podman else "Docker Engine",
        kernel=str(info.get("KernelVersion", "?")),
        system=str(info.get("OperatingSystem", "")),
        default_runtime=str(info.get("DefaultRuntime") or "runc"),
        apparmor="apparmor" in options,
        selinux="selinux" in options,
        parts=parts,
    )


async def why_refused(engine: Engine, refusal: docker.errors.APIError, runtime: str | None) -> str:
    """Why the engine does not start a sandbox, in its own words but for a runtime that it has not.

    Raises:
        SandboxUnavailableError: it does not answer any more.
    """
    text = str(refusal.explanation)
    if "unknown" not in text.lower() or "runtime" not in text:
        return f"the engine does not start the sandbox: {text}"
    facts = await engine_facts(engine)
    return (
        f"the engine at {engine.endpoint} has no runtime {runtime!r}, it has {', '.join(facts.runtimes)}; set "
        "sandbox.runtime in the policy to one of these, or add that one to the engine (docs/escape-test.md)"
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
