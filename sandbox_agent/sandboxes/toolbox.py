"""bash, rg and python3 for images that were not built by us: a read-only volume, made once from our own image.

Its programs have their own loader and libraries (see `toolbox_fill`), so they run beside any C library, or none. They
come last in PATH: what the image has itself is what a command gets. Only the runner prefers the toolbox's Python, which
no process of its uid can look into.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import docker.errors

import sandbox_agent
from sandbox_agent.errors import SandboxStartError, SandboxUnavailableError
from sandbox_agent.sandboxes.cleaner import body_of, run_to_end
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.images import Image, find_image
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_VERSION, this_process
from sandbox_agent.sandboxes.program import TOOLBOX
from sandbox_agent.sandboxes.spec import DEFAULT_IMAGE

LABEL_TOOLBOX = "sandbox-agent.toolbox"
"""On the volume, which outlives every session: the image that it was made from."""

OK, NOT_FOUND = 200, 404


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The volume for one container: its name, and what it is made from."""

    name: str
    base: Image
    program: str

    def put_in(self, body: dict[str, Any]) -> None:
        """Mount it in a create body, read-only, and name its programs last in PATH."""
        body["HostConfig"]["Mounts"].append(self._mount(read_only=True))
        body["Env"] = [f"{value}:{TOOLBOX}/bin" if value.startswith("PATH=") else value for value in body["Env"]]

    async def make_sure(self, engine: Engine, container_id: str) -> None:
        """Fill the volume that a container has, if nobody did to the end: the engine makes an empty one for a new name.

        Args:
            engine: where the container is.
            container_id: made with `put_in`, not started.

        Raises:
            SandboxStartError: it cannot be made here.
        """
        control = engine.control
        url = f"{control.base_url}/v{engine.version}/containers/{container_id}/archive"
        found = await engine.ask(control.head, url, params={"path": f"{TOOLBOX}/.complete"}, timeout=control.timeout)
        if found.status_code == OK:
            return
        if found.status_code != NOT_FOUND:
            raise SandboxStartError(f"the engine does not say whether the toolbox is there ({found.status_code})")
        command = ["python3", "-I", "-S", "-c", self.program, TOOLBOX]
        labels = {LABEL_OWNER: this_process().label(), LABEL_VERSION: sandbox_agent.__version__}
        try:
            code = await run_to_end(engine, body_of(self.base.id, command, [], self._mount(read_only=False), labels))
        except docker.errors.APIError as exc:
            raise SandboxStartError(f"the engine does not make the toolbox: {exc.explanation}") from exc
        if code != 0:
            raise SandboxStartError(f"the toolbox cannot be made from {self.base.name} (exit code {code})")

    def _mount(self, *, read_only: bool) -> dict[str, Any]:
        options = {"NoCopy": True, "Labels": {LABEL_TOOLBOX: self.base.id, LABEL_VERSION: sandbox_agent.__version__}}
        return {
            "Type": "volume",
            "Source": self.name,
            "Target": TOOLBOX,
            "ReadOnly": read_only,
            "VolumeOptions": options,
        }


async def toolbox_for(engine: Engine, image: Image) -> Toolbox | None:
    """What an image gets; None for images of ours, which have everything, and where ours is not on the engine."""
    if image.ours:
        return None
    try:
        return await _current(engine)
    except SandboxUnavailableError:
        return None


async def toolbox_name(engine: Engine) -> str:
    """The volume that sessions get now. Raises SandboxUnavailableError: our image is not on the engine."""
    return (await _current(engine)).name


async def _current(engine: Engine) -> Toolbox:
    base = await find_image(engine, DEFAULT_IMAGE)
    program = resources.files(__package__).joinpath("toolbox_fill.py").read_text("utf-8")
    recipe = hashlib.sha256(program.encode()).hexdigest()[:12]
    return Toolbox(f"sandbox-agent-toolbox-{base.id.removeprefix('sha256:')[:12]}-{recipe}", base, program)
