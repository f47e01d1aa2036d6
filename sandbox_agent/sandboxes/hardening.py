"""From a `SandboxSpec` to the body of the Engine API's create call, every measure of it in one place. Pure, but for
`write_etc_files` and a look at /sys/devices.

Not through the command line: it cannot set the masked paths.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.egress.forwarder import FOLDER as FORWARDER_FOLDER
from sandbox_agent.sandboxes.image_env import unset
from sandbox_agent.sandboxes.images import Image
from sandbox_agent.sandboxes.seccomp.profile import profile_text
from sandbox_agent.sandboxes.spec import APART_UID, HOME, MAIN_UID, MEMLOCK_BYTES, SMALL_TMPFS, USER, SandboxSpec
from sandbox_agent.sandboxes.volumes import overlay_volume, plain_volume, shared_volume
from sandbox_agent.types import WORKSPACE_MOUNT, EmptyMount, OverlayMount, SharedMount, VolumeMount, WorkspaceMount

HOSTNAME = "sandbox"
VOLUME_BYTES = 64 * MIB
EMPTY_BYTES = MIB
"""Of the folder in place of a workspace."""


ENV: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": USER,
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # `git commit --amend` goes on with the old message; `git rebase -i` fails, rather than run its default list.
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "false",
    # The repository may belong to somebody else than the folder; git would have nothing to do with it. No other
    # place is trusted so: git runs programs that a repository's configuration names.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": WORKSPACE_MOUNT,
    "EDITOR": "false",
    "VISUAL": "false",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    # Byte code beside the sources would show up among the changes of every session that runs Python.
    "PYTHONPYCACHEPREFIX": f"{HOME}/.cache/python",
}
"""The environment of every command, with what the image sets beside it and does no harm, see `image_env`. Nothing of
the host's comes in."""

_ENGINE_MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip

_OUR_MASKED = (
    "/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/softirqs", "/proc/modules", "/proc/kallsyms",
    "/proc/iomem", "/proc/ioports", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
    "/proc/vmallocinfo", "/proc/slabinfo", "/proc/zoneinfo", "/proc/pagetypeinfo", "/proc/schedstat",
    "/proc/diskstats", "/proc/partitions", "/proc/swaps", "/proc/mdstat", "/proc/buddyinfo", "/proc/key-users",
    "/proc/locks", "/proc/pressure", "/proc/consoles", "/proc/tty", "/proc/driver", "/proc/misc", "/proc/dma",
    "/proc/mtrr", "/proc/fb", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/bootconfig",
    "/sys/kernel", "/sys/module", "/sys/block", "/sys/dev", "/sys/bus", "/sys/power", "/sys/hypervisor",
    "/sys/class/powercap", "/sys/class/dmi", "/sys/class/block", "/sys/class/bdi", "/sys/class/misc", "/sys/class/tty",
    "/sys/devices/virtual/dmi", "/sys/devices/virtual/block", "/sys/devices/virtual/bdi", "/sys/devices/virtual/misc",
    "/sys/fs/bpf", "/sys/fs/btrfs", "/sys/fs/ext4", "/sys/fs/f2fs", "/sys/fs/fuse", "/sys/fs/pstore", "/sys/fs/xfs",
)  # fmt: skip

_DEVICE_FOLDERS = (
    "LNXSYSTM:00", "breakpoint", "faux", "i8042", "kprobe", "msr", "pci0000:00", "platform", "pnp0", "soc", "software",
    "tracepoint", "uprobe",
)  # fmt: skip
"""Below /sys/devices, on most machines; of the machine we run on, all are known."""

_SHOWN_DEVICES = ("system", "virtual")
"""How many processors there are, and the container's own network; programs ask for both."""

MASKED_PATHS = (*_ENGINE_MASKED, *_OUR_MASKED)
"""/sys/fs/cgroup stays readable: runtimes read their limits there. Paths that a machine does not have do no harm."""


def masked_devices(names: Iterable[str] = ()) -> tuple[str, ...]:
    """What hides devices with their serial numbers; `names` are the folders below the machine's /sys/devices."""
    found = dict.fromkeys((*_DEVICE_FOLDERS, *names))
    return tuple(f"/sys/devices/{name}" for name in sorted(found) if name not in _SHOWN_DEVICES)


_NEVER_VOLUMES = ("/", "/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/lib", "/lib64")

READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class EtcFiles:
    """Host paths of the small files that replace what the engine or the image would put there."""

    passwd: str
    group: str
    resolv_conf: str
    hosts: str


def write_etc_files(spec: SandboxSpec) -> EtcFiles | None:
    """Write them into the session's state folder, readable by the engine (which may map root to somebody else); None
    where it has none.

    Raises:
        OSError: the folder cannot be written.
    """
    if spec.state_dir is None:
        return None
    folder = Path(spec.state_dir) / "etc"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    texts = {
        "passwd": (
            "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
            f"{USER}:x:{spec.uid}:{spec.gid}:{USER}:{HOME}:/bin/bash\n"
            f"sandbox:x:{MAIN_UID}:{MAIN_UID}:sandbox:/nonexistent:/usr/sbin/nologin\n"
            f"hooks:x:{APART_UID}:{spec.gid}:hooks:/tmp:/usr/sbin/nologin\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "group": f"root:x:0:\n{USER}:x:{spec.gid}:\nsandbox:x:{MAIN_UID}:\nnogroup:x:65534:\n",
        # Without one of ours the engine copies the host's in, which names its resolvers and search domains.
        "resolv.conf": "# This sandbox has no network.\n",
        # Programs look up their own host's name; a sandbox without a network has no second address to give.
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n",
    }
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        os.chmod(path, 0o644)
    return EtcFiles(*(str(folder / name) for name in texts))


def create_body(
    spec: SandboxSpec,
    *,
    image: Image,
    etc: EtcFiles | None,
    labels: Mapping[str, str],
    nofile: int | None,
    volume: str = "",
) -> dict[str, Any]:
    """The create body. `nofile` is None where the engine may not set that limit; `volume` names that of an overlay.

    Raises:
        SandboxStartError: the image cannot be had as a sandbox, see `volume_tmpfs`.
    """
    host_config = _host_config(spec, nofile)
    host_config["Tmpfs"] = volume_tmpfs(image) | host_config["Tmpfs"]
    env = {**ENV, **spec.pinned_env, **spec.egress_env}
    return {
        "Image": image.id,
        "User": f"{MAIN_UID}:{MAIN_UID}",
        "Entrypoint": [],
        "Cmd": ["sleep", str(spec.lifetime_s)],
        "Healthcheck": {"Test": ["NONE"]},
        "Hostname": HOSTNAME,
        "WorkingDir": WORKSPACE_MOUNT,
        "Env": [*(f"{name}={value}" for name, value in env.items()), *unset(image.env_names, env)],
        "StopTimeout": 1,
        "Tty": False,
        "OpenStdin": False,
        "NetworkDisabled": True,
        "Labels": dict(labels),
        "HostConfig": {**host_config, "Mounts": _mounts(spec, etc, labels, volume)},
    }


def _host_config(spec: SandboxSpec, nofile: int | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        # A container that was killed must still be there to be asked why.
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "Privileged": False,
        "Init": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": _security_options(spec),
        "GroupAdd": [str(group) for group in spec.groups],
        "ReadonlyRootfs": True,
        "NetworkMode": spec.network,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "ShmSize": min(spec.shm_bytes, spec.memory_bytes // 16),
        "Tmpfs": _tmpfs(spec),
        "PidsLimit": spec.pids,
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,
        "NanoCpus": int(spec.cpus * 1e9),
        "OomScoreAdj": 500,
        "Ulimits": _ulimits(spec, nofile),
        "LogConfig": {"Type": "none"},
        "MaskedPaths": [*MASKED_PATHS, *masked_devices(_own_devices())],
        "ReadonlyPaths": list(READONLY_PATHS),
    }
    if spec.runtime is not None:
        config["Runtime"] = spec.runtime
    return config


def _own_devices() -> list[str]:
    """Of the machine we run on, which is the engine's where that is local."""
    try:
        return os.listdir("/sys/devices")
    except OSError:
        return []


def _security_options(spec: SandboxSpec) -> list[str]:
    return ["no-new-privileges:true", f"seccomp={profile_text(spec.seccomp)}"]


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    # The mode of a folder that the image has wins over one given here (seen with runc 1.1).
    common = "rw,nosuid,nodev"
    # More than the memory that they take would end in a kill instead of "No space left on device".
    tmp, home = min(spec.tmp_bytes, spec.memory_bytes // 2), min(spec.home_bytes, spec.memory_bytes // 4)
    owner = f"uid={spec.uid},gid={spec.gid}"
    mounts = {
        "/tmp": f"{common},exec,size={tmp},nr_inodes={spec.tmp_files},mode=1777",
        HOME: f"{common},exec,size={home},nr_inodes={spec.home_files},{owner},mode=700",
    }
    for path, size in SMALL_TMPFS.items():
        mounts[path] = f"{common},noexec,size={min(size, spec.memory_bytes // 32)},nr_inodes=5000"
    if isinstance(spec.workspace_source, EmptyMount):
        mounts[WORKSPACE_MOUNT] = f"{common},noexec,size={EMPTY_BYTES},nr_inodes=1000,{owner},mode=755"
    if spec.egress_env:
        mounts[FORWARDER_FOLDER] = f"{common},noexec,size=8m,nr_inodes=16,uid={MAIN_UID},gid={MAIN_UID},mode=755"
    return mounts


def volume_tmpfs(image: Image) -> dict[str, str]:
    """A small tmpfs for each folder that the image declares as a volume: the engine would make a volume on the host's
    disk, which no limit bounds.

    Raises:
        SandboxStartError: one is below the workspace or covers what every container has.
    """
    found = {}
    for path in map(posixpath.normpath, image.volumes):
        above = {str(folder) for folder in PurePosixPath(path).parents}
        if path in _NEVER_VOLUMES or above & {WORKSPACE_MOUNT, "/proc", "/sys", "/dev"} or "/" not in above:
            text = f"the image {image.name} declares a volume at {path}, which a sandbox cannot have"
            raise SandboxStartError(f"{text}; build one from it without that volume")
        if path != WORKSPACE_MOUNT:
            found[path] = f"rw,nosuid,nodev,exec,size={VOLUME_BYTES},nr_inodes=5000,mode=1777"
    return found


def _ulimits(spec: SandboxSpec, nofile: int | None) -> list[dict[str, Any]]:
    # Not nproc: it counts a uid's processes on the whole host.
    limits = {"core": 0, "fsize": spec.fsize_bytes, "memlock": MEMLOCK_BYTES, "msgqueue": 0, "rtprio": 0}
    if nofile is not None:
        limits["nofile"] = nofile
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


def _mounts(spec: SandboxSpec, etc: EtcFiles | None, labels: Mapping[str, str], volume: str) -> list[dict[str, Any]]:
    small = {}
    if etc is not None:
        small = {
            "/etc/passwd": etc.passwd,
            "/etc/group": etc.group,
            "/etc/resolv.conf": etc.resolv_conf,
            "/etc/hosts": etc.hosts,
        }
    return [
        *_workspace(spec.workspace_source, labels, volume),
        *(_bind(source, target, read_only=True) for target, source in small.items()),
        *(_bind("/dev/null", path, read_only=True) for path in spec.masks),
    ]


def _workspace(source: WorkspaceMount, labels: Mapping[str, str], volume: str) -> list[dict[str, Any]]:
    match source:
        case OverlayMount():
            return [overlay_volume(volume, source, labels)]
        case VolumeMount():
            return [plain_volume(source, labels)]
        case SharedMount(is_volume=True):
            return [shared_volume(source)]
        case SharedMount():
            return [_bind(source.source, WORKSPACE_MOUNT, read_only=source.read_only)]
        case EmptyMount():
            return []  # a tmpfs, with the others
        case _:
            return [_bind(source, WORKSPACE_MOUNT, read_only=False)]


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }
