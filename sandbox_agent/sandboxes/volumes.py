"""The workspace as a Docker volume: an overlay that the engine mounts for us, or a volume that only the engine has.

The engine mounts as root, so this works for an ordinary user in the docker group too. A volume is made together with
the container that uses it, carries the same labels, and is removed by `DockerSandbox.close`, or by `reap`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sandbox_agent.types import WORKSPACE_MOUNT, OverlayMount, SharedMount, VolumeMount

LABEL_KEPT = "sandbox-agent.kept"
"""On volumes that hold work of their own: neither closing nor `reap` removes them, only who discards the work."""

_ESCAPED = "\\:,"


def overlay_name(session_id: str) -> str:
    """A new name each time: the engine would quietly take a volume that is left under an old one, with its old layers.

    An overlay volume is only a description of the mount; the layers are folders of ours.
    """
    return f"sandbox-agent-{session_id}-{secrets.token_hex(4)}"


def overlay_volume(name: str, mount: OverlayMount, labels: Mapping[str, str]) -> dict[str, Any]:
    """The entry of the create body's Mounts."""
    # redirect_dir: without it renaming a folder of the lower layer is EXDEV, which few programs expect. The others
    # are the kernel's usual defaults, said because a machine may be configured otherwise.
    options = f"{overlay_data(mount)},redirect_dir=on,metacopy=off,index=off,nfs_export=off,nosuid,nodev"
    driver = {"Name": "local", "Options": {"type": "overlay", "device": "overlay", "o": options}}
    return _volume(name, {"NoCopy": True, "Labels": dict(labels), "DriverConfig": driver})


def plain_volume(mount: VolumeMount, labels: Mapping[str, str]) -> dict[str, Any]:
    """The same for a volume of the engine's own."""
    return _volume(mount.name, {"NoCopy": True, "Labels": {**labels, LABEL_KEPT: "1"}})


def shared_volume(mount: SharedMount) -> dict[str, Any]:
    """The same for a volume that another container has, and brought along."""
    return _volume(mount.source, {"NoCopy": True}) | {"ReadOnly": mount.read_only}


def overlay_data(mount: OverlayMount) -> str:
    """The layers as mount options; separators in paths are escaped as the kernel's parser wants it."""
    lower = ":".join(escape(path) for path in mount.lower)
    return f"lowerdir={lower},upperdir={escape(mount.upper)},workdir={escape(mount.work)}"


def escape(path: str) -> str:
    """A path inside overlay's options, where ":" parts layers and "," parts options."""
    return "".join(f"\\{char}" if char in _ESCAPED else char for char in path)


def _volume(name: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"Type": "volume", "Source": name, "Target": WORKSPACE_MOUNT, "ReadOnly": False, "VolumeOptions": options}
