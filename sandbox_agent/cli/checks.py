"""What `doctor` looks at without starting anything: key, state folder, policy, engine, image."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sandbox_agent.config import config_dir, state_dir
from sandbox_agent.errors import ConfigError, SandboxUnavailableError
from sandbox_agent.models.credentials import read_access
from sandbox_agent.policy.load import check_outside_workspace, run_policy
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.facts import image_facts
from sandbox_agent.sandboxes.images import find_image
from sandbox_agent.sandboxes.toolbox import toolbox_for

_LITTLE_SPACE_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class Check:
    """One line. `todo` says what to do about a warning or a failure, where `text` does not."""

    name: str
    level: Literal["ok", "warn", "fail"]
    text: str
    todo: str | None = None


def check_key() -> Check:
    """Whether a model of the API could be used; the value is never shown."""
    try:
        access = read_access(os.environ)
    except ConfigError as exc:
        return Check("key", "warn", str(exc))
    return Check("key", "ok", f"from {access.secret_from}, for {access.endpoint} (from {access.base_url_from})")


def check_state() -> Check:
    """Whether sessions can be kept, and kept to ourselves."""
    try:
        folder = state_dir()
        free_bytes = shutil.disk_usage(folder).free
    except OSError as exc:
        text = f"the state folder cannot be made: {exc.filename}: {exc.strerror}"
        return Check("state", "fail", text, "make its parent writable, or set XDG_STATE_HOME to another place")
    text = f"{folder} ({free_bytes / 1e9:.1f} GB free); your own policy would be in {config_dir()}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("state", "fail", f"{folder} cannot be written", "make it yours, or set XDG_STATE_HOME")
    if folder.stat().st_mode & 0o022:
        return Check("state", "fail", f"{folder} can be written by others", f"chmod go-w {folder}")
    if free_bytes < _LITTLE_SPACE_BYTES:
        return Check("state", "warn", text, "copies of folders go there: make room")
    return Check("state", "ok", text)


def check_policy(image: str | None) -> tuple[Check, SandboxSettings]:
    """The policy that a run without flags gets in the current folder, and the sandbox it asks for."""
    try:
        policy = run_policy(None)
        check_outside_workspace(policy, Path.cwd())
    except ConfigError as exc:
        return Check("policy", "fail", str(exc), "correct the file"), SandboxSettings(image=image or "base")
    own = ", ".join(map(str, policy.files)) or "shipped"
    text = f"{policy.name}, mode {policy.mode.value} ({own}; outside this folder, and not for others to write)"
    return Check("policy", "ok", text), replace(policy.sandbox, image=image or policy.sandbox.image)


async def check_image(engine: Engine, name: str) -> Check:
    """Whether the image is there, and where it came from.

    Raises:
        SandboxUnavailableError: the engine stopped answering.
    """
    try:
        image = await find_image(engine, name)
    except SandboxUnavailableError as exc:
        return Check("image", "fail", str(exc))
    facts = await image_facts(engine, image)
    text = f"{image.name}, {image.id.removeprefix('sha256:')[:12]}, {facts.size_bytes / 1e6:.0f} MB"
    if facts.recipe is None:
        toolbox = await toolbox_for(engine, image)
        if toolbox is None:
            todo = "it must have bash, rg and python3 itself, unless ours is on the engine too: `make setup`"
            return Check("image", "warn", f"{text}, not built by us", todo)
        what = f"what it lacks of bash, rg and python3 comes from a read-only toolbox, volume {toolbox.name}"
        return Check("image", "ok", f"{text}, not built by us: {what}")
    return Check("image", "ok", f"{text}, recipe {facts.recipe[:12]}, base from {facts.base_source or 'unknown'}")
