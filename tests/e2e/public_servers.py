"""Public MCP servers: had from the registries once, kept in the cache folder, and put into an image over dev."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NPM = [f"@modelcontextprotocol/server-{name}" for name in ("everything", "filesystem", "memory")]
NPM_VERSION = "2026.8.31"
PYPI = ["mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"]
INSTALL_S = 240
RECIPE = "FROM sandbox-agent/dev:latest\nCOPY . /opt/mcp\n"


class NoServersError(Exception):
    """They cannot be had; the text is one line."""


def had() -> Path:
    """The folder with `node` and `py`, installed now if it is not there yet.

    Raises:
        NoServersError: a registry cannot be reached, or there is no npm.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "sandbox-agent"
    cache.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(json.dumps([NPM, NPM_VERSION, PYPI]).encode()).hexdigest()[:12]
    place = cache / f"mcp-servers-{mark}"
    with open(cache / "mcp-servers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            fresh = place.with_name(f"{place.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            npm = shutil.which("npm")
            if npm is None:
                raise NoServersError(
                    "the public MCP servers: there is no npm on this machine; install Node.js with npm"
                )
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh / "node")]
            _do("the npm registry", [npm, "install", *options, *(f"{name}@{NPM_VERSION}" for name in NPM)])
            uv = str(Path(sys.executable).with_name("uv"))
            # For the Python of the image, which need not be this one.
            target = ["--target", str(fresh / "py"), "--python-version", "3.11", "--only-binary", ":all:"]
            _do("PyPI", [uv, "--no-config", "pip", "install", "--quiet", *target, *PYPI])
            fresh.rename(place)  # only what is whole is taken for it
    return place


def image_of(place: Path) -> str:
    """An image with them in /opt/mcp, made if this engine has it not, over the dev image that is there now.

    Raises:
        NoServersError: it cannot be made.
    """
    dev = _do("the engine", ["docker", "image", "inspect", "--format", "{{.Id}}", "sandbox-agent/dev:latest"])
    tag = f"sandbox-agent/test-mcp-servers:{hashlib.sha256((dev + place.name + RECIPE).encode()).hexdigest()[:12]}"
    if subprocess.run(["docker", "image", "inspect", tag], capture_output=True, check=False).returncode:
        recipe = place.with_suffix(".dockerfile")
        recipe.write_text(RECIPE)
        _do("the engine", ["docker", "build", "--quiet", "--network", "none", "-t", tag, "-f", str(recipe), str(place)])
    return tag


def _do(whose: str, words: list[str]) -> str:
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise NoServersError(f"the public MCP servers: {whose} gave nothing within {INSTALL_S} s") from None
    if ended.returncode:
        raise NoServersError(
            f"the public MCP servers cannot be had from {whose}: {' '.join(ended.stderr.split())[:300]}"
        )
    return ended.stdout.strip()
