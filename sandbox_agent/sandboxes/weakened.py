"""Containers that are *not* hardened, each in another way: to show what the hardening is for, and that the escape
test can fail. Nothing of a session ever runs in one; only our own probes do, on a folder made for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import docker.errors

import sandbox_agent
from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.base import DEFAULT_MAX_OUTPUT_BYTES, ExecResult
from sandbox_agent.sandboxes.container import Life, RunningContainer
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine, Streams, reach
from sandbox_agent.sandboxes.images import find_image
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_SESSION, LABEL_VERSION, this_process
from sandbox_agent.sandboxes.perexec import PerExec
from sandbox_agent.sandboxes.removal import remove_container
from sandbox_agent.sandboxes.resident import Resident
from sandbox_agent.sandboxes.runners import NoRunnerError, Runners
from sandbox_agent.sandboxes.toolbox import Toolbox, toolbox_for
from sandbox_agent.types import WORKSPACE_MOUNT

CLOSE_S = 20.0
LIFETIME_S = 600
PIDS = 4096
"""No limit of the kind that a session has; only so that a mistake of ours cannot take the machine down."""

_ALONE_UID = 65529
"""Of what runs among the machine's own processes: nobody else's there."""

_DECOYS = """
mkdir -p /run "$HOME/.aws" "$HOME/.ssh"
echo decoy > "$HOME/.aws/credentials"; echo decoy > "$HOME/.ssh/id_ed25519"
python3 -I -S -c 'import socket
s = socket.socket(socket.AF_UNIX); s.bind("/run/docker.sock")'
exec sleep "$1"
"""


_CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
    "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
    "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read",
)  # fmt: skip
"""By their number; the newer ones are not known to every engine."""

_DEVICES = (
    "kmsg",
    "vda",
    "sda",
    "nvme0n1",
    "loop-control",
    "fuse",
    "kvm",
    "net/tun",
    "ttyS0",
    "tty0",
    "tty1",
    "rtc0",
    "mem",
)
"""Of which a privileged container has all that there are; our probes open them and read nothing."""

_UNCOVER = """
mount -o remount,bind,rw /sys
while read -r source place kind rest; do
    case $kind in cgroup | cgroup2) mount -o remount,bind,rw "$place" ;; esac
done < /proc/mounts
exec sleep "$1"
"""


@dataclass(frozen=True, slots=True)
class Weakness:
    """One kind. `user` is who its commands run as; `host` is merged into the create body's HostConfig."""

    about: str
    host: Mapping[str, Any]
    user: str = "0:0"
    env: tuple[str, ...] = ()
    script: str = 'exec sleep "$1"'


def weaknesses(workspace: str | None) -> Mapping[str, Weakness]:
    """Every kind, by its name, on a folder of the machine; None where the engine sees none of ours."""
    bound = [] if workspace is None else [_bind(workspace, WORKSPACE_MOUNT, read_only=False)]
    shown = [] if workspace is None else [_bind(workspace, "/home/somebody", read_only=True)]
    tools = "65532:65532"
    return {
        "plain": Weakness("as `docker run` makes it: root, the engine's own filter and network", {"Mounts": bound}),
        "privileged": Weakness(
            "root, privileged, no filter of system calls",
            {"Privileged": True, "SecurityOpt": ["seccomp=unconfined"], "CgroupnsMode": "host", "Mounts": bound},
            script=_UNCOVER,
        ),
        "host": Weakness(
            "among the machine's own processes, network, IPC and control groups, as an ordinary user",
            {"PidMode": "host", "NetworkMode": "host", "IpcMode": "host", "UTSMode": "host", "CgroupnsMode": "host",
             "Mounts": [*bound, *shown]},
            user=f"{_ALONE_UID}:{_ALONE_UID}",
        ),
        "shared": Weakness(
            "no capabilities, but everything of one user, the main process too",
            {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges:true"], "NetworkMode": "none", "Mounts": bound},
            user=tools,
        ),
        "secrets": Weakness(
            "with decoys of secrets: variables, credentials, a socket where an engine's would be",
            {"Mounts": bound},
            env=("EXAMPLE_API_KEY=decoy", "AWS_SECRET_ACCESS_KEY=decoy"),
            script=_DECOYS,
        ),
    }  # fmt: skip


class WeakenedSandbox:
    """`exec` and nothing else, in a container of one of the kinds."""

    def __init__(self, weakness: Weakness, image: str, session_id: str, endpoint: Endpoint) -> None:
        self._weakness = weakness
        self._image = image
        self._session_id = session_id
        self._endpoint = endpoint
        self._engine: Engine | None = None
        self._streams: Streams | None = None
        self._container_id: str | None = None
        self._verbs: Resident | PerExec | None = None

    async def start(self) -> None:
        """Create and start it.

        Raises:
            SandboxUnavailableError: no engine answers, or it has not this image.
            SandboxStartError: the engine refuses.
        """
        engine = self._engine = await reach(self._endpoint)
        image = await find_image(engine, self._image)
        body = self._body(image.id)
        toolbox = await toolbox_for(engine, image)
        if toolbox is not None:
            toolbox.put_in(body)
        try:
            await self._run(engine, body, toolbox)
        except docker.errors.APIError as exc:
            if "caps" not in str(exc.explanation) or not self._weakness.host.get("Privileged"):
                raise SandboxStartError(f"the engine does not start a weakened container: {exc.explanation}") from exc
            await self._remove(engine)
            body["HostConfig"] = {**body["HostConfig"], **_nearly_privileged()}
            try:
                await self._run(engine, body, toolbox)
            except docker.errors.APIError as again:
                raise SandboxStartError(f"the engine starts no privileged container: {again.explanation}") from again
        streams = self._streams = engine.streams()
        container = RunningContainer(engine, streams, self._container_id or "", self._weakness.user, PIDS, Life())
        runners = Runners(container)
        try:
            await runners.connect()
            self._verbs = Resident(runners)
        except NoRunnerError:
            self._verbs = PerExec(container)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        assert self._verbs is not None
        return await self._verbs.exec(
            argv, stdin=stdin, env=env, timeout_s=timeout_s, max_output_bytes=max_output_bytes
        )

    async def close(self) -> None:
        """Remove it, whatever happened."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
            if self._verbs is not None:
                await self._verbs.aclose()
            if self._streams is not None:
                await self._streams.aclose()
            if self._engine is None:
                return
            await self._remove(self._engine)
            self._engine.close()
            self._engine = None

    async def _run(self, engine: Engine, body: dict[str, Any], toolbox: Toolbox | None) -> None:
        with anyio.CancelScope(shield=True):
            answer: dict[str, Any] = await engine.ask(engine.control.create_container_from_config, body, None)
            self._container_id = made = str(answer["Id"])
        if toolbox is not None:
            await toolbox.make_sure(engine, made)
        await engine.ask(engine.control.start, made)

    async def _remove(self, engine: Engine) -> None:
        if self._container_id is not None:
            await remove_container(engine, self._container_id)
            self._container_id = None

    def _body(self, image_id: str) -> dict[str, Any]:
        weak, home = self._weakness, "/tmp" if self._weakness.user != "0:0" else "/root"
        return {
            "Image": image_id,
            "User": weak.user,
            "Entrypoint": [],
            "Cmd": ["sh", "-c", weak.script, "sh", str(LIFETIME_S)],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"HOME={home}", *weak.env],
            "WorkingDir": "/",
            "Labels": {
                LABEL_SESSION: self._session_id,
                LABEL_OWNER: this_process().label(),
                LABEL_VERSION: sandbox_agent.__version__,
            },
            "HostConfig": {"AutoRemove": False, "Init": True, **weak.host},
        }


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def _nearly_privileged() -> dict[str, Any]:
    """Where the engine itself has not every capability (in some virtual machines), what it can give."""
    devices = [f"/dev/{name}" for name in _DEVICES if os.path.exists(f"/dev/{name}")]
    return {
        "Privileged": False,
        "CapAdd": [
            f"CAP_{name.upper()}" for number, name in enumerate(_CAPABILITIES) if _own_capabilities() >> number & 1
        ],
        "Devices": [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in devices],
        "DeviceCgroupRules": ["a *:* rwm"],
        "MaskedPaths": [],
        "ReadonlyPaths": [],
    }


def _own_capabilities() -> int:
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:")), 0)
