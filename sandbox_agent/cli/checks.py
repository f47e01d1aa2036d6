"""What `doctor` looks at without starting anything: key, state folder, policy, engine, image."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox_agent.config import config_dir, state_dir
from sandbox_agent.errors import ConfigError, SandboxUnavailableError
from sandbox_agent.models.credentials import read_access
from sandbox_agent.policy.load import run_policy
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.facts import EngineFacts, image_facts
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


def check_policy(image: str | None) -> tuple[Check, str]:
    """The policy that a run without flags gets, and the image to look at."""
    try:
        policy = run_policy(None)
    except ConfigError as exc:
        return Check("policy", "fail", str(exc), "correct the file"), image or "base"
    return Check("policy", "ok", f"{policy.name}, mode {policy.mode.value}"), image or policy.sandbox.image


def describe_isolation(facts: EngineFacts) -> Iterator[Check]:
    """What the engine itself adds to our hardening."""
    if facts.rootless:
        users = "rootless: root in a container would be an ordinary user of this machine"
    elif facts.userns_remap:
        users = "userns-remap: root in a container would be a uid without rights on this machine"
    else:
        users = (
            "not remapped: a uid in a container is that uid of this machine; tools run as the folder's owner, never 0"
        )
    yield Check("users", "ok", users)
    if facts.seccomp:
        yield Check("seccomp", "ok", "the engine filters system calls")
    else:
        todo = "use a kernel and an engine built with seccomp"
        yield Check("seccomp", "fail", "the engine cannot filter system calls", todo)
    yield Check("cgroup", "ok", f"version {facts.cgroup_version}; runtimes {', '.join(facts.runtimes)}")


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
