"""What a session's container is to be. Every default is the strict one; a verdict of the policy never changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandbox_agent.sandboxes.base import KIB, MIB
from sandbox_agent.sandboxes.seccomp.profile import PROFILES, SeccompProfile
from sandbox_agent.types import OverlayMount, SharedMount, WorkspaceMount

GIB = 1024 * MIB

DEFAULT_IMAGE = "sandbox-agent/base:latest"
MAIN_UID = 65531
"""Of the container's main process: never the tools' uid, so that tools cannot kill it."""

APART_UID = 65530
"""Of programs beside the tools (hooks): the tools can neither kill nor trace them, nor they the main process."""

HOME = "/home/agent"
USER = "agent"


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One session's container. Raises ValueError for what would not be safe or could not work.

    Args:
        workspace_source: what is mounted at /workspace, read-write where it does not say otherwise: a folder of the
            engine's host, layers, a volume, what another container has there, or nothing.
        uid, gid: of everything the tools run; never 0.
        groups: further groups of theirs; never 0.
        session_id: names the container and labels it.
        state_dir: a folder of ours that the engine can read, for the few small files mounted into the container. None
            where it sees no file of ours: then the tools' uid has no name inside.
        image: name, `name@sha256:...` or local ID; "base" is ours. It must be there already.
        network: "none" is the only one so far.
        memory_bytes: swap included; tmpfs counts.
        cpus, pids: limits of the whole container.
        tmp_bytes, home_bytes: size of /tmp and of the home folder, both in memory: at most a half and a quarter of it.
        tmp_files, home_files: how many files and folders they hold.
        shm_bytes: size of /dev/shm, at most a sixteenth of the memory.
        nofile: descriptors of one process.
        fsize_bytes: the largest file a process may write.
        runtime: None is the engine's default.
        seccomp: which of our profiles; "debug" lets a process trace another.
        egress_env: tells the tools' clients of the way out, see `egress.outlet`; empty where there is none.
        pinned_env: further variables of the tools, for a run that is recorded or replayed.
        masks: container paths that read as an empty device, see security.md 3.9.
        lifetime_s: after it the container ends by itself, whoever forgot it.
        transport: "exec" forces one Docker exec per call, for tests and for broken images.
    """

    workspace_source: WorkspaceMount
    uid: int
    gid: int
    session_id: str
    state_dir: str | None
    image: str = DEFAULT_IMAGE
    network: Literal["none"] = "none"
    memory_bytes: int = 2 * GIB
    cpus: float = 2.0
    pids: int = 512
    tmp_bytes: int = GIB
    tmp_files: int = 200_000
    home_bytes: int = 512 * MIB
    home_files: int = 100_000
    shm_bytes: int = 64 * MIB
    nofile: int = 4096
    fsize_bytes: int = 4 * GIB
    runtime: str | None = None
    seccomp: SeccompProfile = "default"
    egress_env: Mapping[str, str] = field(default_factory=dict)
    pinned_env: Mapping[str, str] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    lifetime_s: int = 7 * 24 * 3600
    transport: Literal["auto", "exec"] = "auto"
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.uid, self.gid, *self.groups) <= 0:
            raise ValueError(f"tools never run as 0: uid {self.uid}, gid {self.gid}, groups {list(self.groups)}")
        if self.uid in (MAIN_UID, APART_UID):
            raise ValueError(f"uid {self.uid} is the container's own")
        if not all(path.startswith("/") for path in (*_host_paths(self.workspace_source), self.state_dir or "/")):
            raise ValueError("workspace_source and state_dir are absolute paths")
        if self.network != "none":
            raise ValueError(f"network {self.network!r} is not supported")
        if self.seccomp not in PROFILES:
            raise ValueError(f"seccomp {self.seccomp!r} is not one of {', '.join(PROFILES)}")
        self._check_limits()
        if not all(mask.startswith("/") for mask in self.masks):
            raise ValueError("masks are absolute container paths")

    def _check_limits(self) -> None:
        room = (self.tmp_bytes, self.tmp_files, self.home_bytes, self.home_files, self.shm_bytes, self.fsize_bytes)
        if min(self.memory_bytes, self.pids, self.nofile, self.lifetime_s, *room) <= 0 or self.cpus <= 0:
            raise ValueError("limits are positive")


SMALL_TMPFS = {"/var/tmp": 64 * MIB, "/run": 8 * MIB}
MEMLOCK_BYTES = 64 * KIB


def _host_paths(source: WorkspaceMount) -> tuple[str, ...]:
    if isinstance(source, OverlayMount):
        return (*source.lower, source.upper, source.work)
    if isinstance(source, SharedMount) and not source.is_volume:
        return (source.source,)
    return (source,) if isinstance(source, str) else ()
