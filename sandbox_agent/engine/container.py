"""The container of a session, from what its record says of it: for an undo, an export and a session that goes on.

A session that ran under a narrow policy must not get a wider container later because nobody names the policy again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.events import SessionStarted
from sandbox_agent.hostnames import HostnameError, entry_of_json
from sandbox_agent.policy.policy import SANDBOX_KEYS, Policy, SandboxSettings
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.tape import read_tape
from sandbox_agent.types import JsonObject, VolumeMount
from sandbox_agent.workspaces.base import Workspace

_ELSEWHERE = ("image", "network", "masks", "disk", "allow_hosts", "egress", "ca_bundle")
"""Keys that the record has in a place of its own, or that are the workspace's matter."""

_KEYS = {field: key for key, field in SANDBOX_KEYS.items() if key not in _ELSEWHERE}
"""Field of the settings to key of the policy file, for what the record has besides the image."""


_NETWORK = {"allow_hosts": "allow_hosts", "egress_bytes": "egress", "ca_bundle": "ca_bundle"}
"""The same for the gate, which is no matter of the container's."""


def facts_of(settings: SandboxSettings) -> JsonObject:
    """For `SessionStarted.sandbox`."""
    hosts = [entry.as_json() for entry in settings.allow_hosts]
    return {name: getattr(settings, name) for name in (*_KEYS, *_NETWORK)} | {"allow_hosts": hosts}


def last_start(folder: Path) -> SessionStarted | None:
    """How the session in a state folder was started last; None if its record holds nothing."""
    events = (entry.event for entry in reversed(read_tape(folder / EVENTS_FILE).entries))
    return next((event for event in events if isinstance(event, SessionStarted)), None)


def settings_of(started: SessionStarted) -> SandboxSettings:
    """What the record says; the defaults for what it does not, as those before this was recorded."""
    names = (*_KEYS, "egress_bytes", "ca_bundle")
    known = {name: started.sandbox[name] for name in names if started.sandbox.get(name) is not None}
    listed = started.sandbox.get("allow_hosts")
    try:
        hosts = tuple(map(entry_of_json, listed)) if isinstance(listed, list | tuple) else ()
    except HostnameError:
        hosts = ()  # a list that is in doubt is none
    return replace(SandboxSettings(), image=started.image, allow_hosts=hosts, **known)


def settings_to_go_on(policy: Policy, folder: Path) -> SandboxSettings:
    """The container of a session that goes on: as it was, but for what this run's policy or options name."""
    started = last_start(folder)
    if started is None:
        return policy.sandbox
    before, named = settings_of(started), {key for key, _ in policy.sources}
    kept = {
        name: getattr(before, name)
        for name, key in (("image", "image"), *_KEYS.items(), *_NETWORK.items())
        if f"sandbox.{key}" not in named
    }
    return replace(policy.sandbox, **kept)


def spec_of(workspace: Workspace, folder: Path, settings: SandboxSettings) -> SandboxSpec:
    """The container on a session's workspace."""
    return SandboxSpec(
        image=settings.image,
        workspace_source=workspace.mount,
        uid=workspace.owner.uid,
        gid=workspace.owner.gid,
        groups=workspace.owner.groups,
        session_id=folder.name,
        state_dir=None if isinstance(workspace.mount, VolumeMount) else str(folder),
        **{name: getattr(settings, name) for name in _KEYS},
    )


def recorded_spec(workspace: Workspace, folder: Path) -> SandboxSpec:
    """The container that the session had, on its workspace."""
    started = last_start(folder)
    return spec_of(workspace, folder, settings_of(started) if started is not None else SandboxSettings())
