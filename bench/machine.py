"""The machine and the versions, as lines above the table: figures of two machines, or of two loads, do not compare."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

from bench.agents import claude_path

OWN_PACKAGES = ("sandbox-agent", "anthropic", "aiodocker", "docker", "anyio")
PEER_PACKAGES = {"v-mini": "mini-swe-agent", "v-swerex": "swe-rex"}


def describe(work: Path) -> list[str]:
    """One line a fact."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    own = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in OWN_PACKAGES)
    peers = ", ".join([*_peer_versions(work), *_claude_version(work)]) or "none installed"
    return [
        f"date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"machine: {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB memory, {_processor()}",
        f"system: Linux {platform.release()}, Python {platform.python_version()}",
        f"engine: {_engine()}",
        f"ours: {own}",
        f"peers: {peers}",
    ]


def load() -> str:
    """The load averages now."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _engine() -> str:
    text = "Docker Engine {{.ServerVersion}}, runtime {{.DefaultRuntime}}, {{.Driver}}, cgroup v{{.CgroupVersion}}"
    return _output(["docker", "info", "--format", text]) or "none answers"


def _peer_versions(work: Path) -> list[str]:
    found = []
    for folder, package in PEER_PACKAGES.items():
        script = f"import importlib.metadata as m; print(m.version({package!r}))"
        version = _output([str(work / folder / "bin" / "python"), "-c", script])
        if version:
            found.append(f"{package} {version}")
    return found


def _claude_version(work: Path) -> list[str]:
    path = claude_path(work)
    version = _output([str(path), "--version"]) if path else ""
    return [f"Claude Code {version.split()[0]}"] if version else []


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
