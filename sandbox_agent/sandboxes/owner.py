"""Who a container belongs to, so that what a dead owner left can be told from what a living one uses."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

LABEL_SESSION = "sandbox-agent.session"
LABEL_OWNER = "sandbox-agent.owner"
LABEL_VERSION = "sandbox-agent.version"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process beyond doubt: machine, boot, pid namespace, pid, and start time (a pid alone is used again)."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started_ticks: int

    def label(self) -> str:
        return f"{self.machine}/{self.boot}/{self.namespace}/{self.pid}/{self.started_ticks}"


def this_process() -> Owner:
    """The process that calls."""
    pid = os.getpid()
    return Owner(_machine(), _boot(), _namespace(), pid, _started_ticks(pid) or 0)


def is_dead(label: str) -> bool:
    """Whether the owner in a label has certainly ended. One on another machine, or out of sight, counts as living."""
    parts = label.split("/")
    if len(parts) != 5 or not parts[3].isdigit():
        return False
    machine, boot, namespace, pid, started = parts
    if machine != _machine():
        return False
    if boot != _boot():
        return True
    return namespace == _namespace() and str(_started_ticks(int(pid))) != started


def _machine() -> str:
    """A name for this machine that says nothing about it."""
    try:
        identity = Path("/etc/machine-id").read_text().strip()
    except FileNotFoundError:
        identity = ""
    return hashlib.sha256(f"sandbox-agent {identity or socket.gethostname()}".encode()).hexdigest()[:12]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _started_ticks(pid: int) -> int | None:
    """When the process started, None if there is none or it has ended and only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
