"""`doctor`'s own attacks: what a hostile folder could plant for us to open, and what a container could reach."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_agent.cli.checks import Check
from sandbox_agent.escape.catalogue import choose, load_catalogue
from sandbox_agent.escape.trying import Ground, Runs, try_probes
from sandbox_agent.escape.verdict import Result, Verdict
from sandbox_agent.workspaces.tree import Tree

_SECRET = b"outside"

_INSIDE = {
    "engine-api": ("docker-sock", "engine-api", "engine-api-local"),
    "vsock": ("vsock",),
    "network": ("net-if", "net-outside", "net-metadata", "net-abstract"),
    "namespace": ("ns-initial", "pidns", "outside-mounts"),
}
"""Name of a check to the probes of the escape test that it is made of."""


def check_planted() -> Iterator[Check]:
    """Plant what a hostile folder could hold, and open it as every part of ours opens a workspace's files."""
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-doctor-") as parent:
        top = Path(parent).resolve()
        (top / "outside").write_bytes(_SECRET)
        (top / "folder").mkdir()
        for name, path in _plant(top / "folder", top).items():
            yield _opened(name, path, top / "folder")


def _plant(folder: Path, top: Path) -> dict[str, str]:
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(top / "outside")
    (folder / "linked").symlink_to(top)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{here}/socket")  # a socket's path may have 107 bytes only
        finally:
            os.close(here)
    return {
        "fifo": "fifo",
        "link": "link",
        "folder-link": "linked/outside",
        "dotdot": "../outside",
        "absolute": str(top / "outside"),
        "socket": "socket",
    }


def _opened(name: str, path: str, folder: Path) -> Check:
    todo = "do not use this installation on folders that you do not trust, and report it"
    try:
        with Tree(folder) as tree, tree.at(path) as place:
            place.read_bytes(len(_SECRET))
    except OSError as exc:
        return Check(name, "ok", f"planted in a folder, it is refused: {exc.strerror}")
    return Check(name, "fail", "planted in a folder, it is opened", todo)


async def check_inside(sandbox: Runs) -> list[Check]:
    """What a started container reaches that it must not; one check for each kind."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Runs]:
        yield sandbox

    catalogue = load_catalogue()
    wanted = choose(catalogue, [name for names in _INSIDE.values() for name in names])
    results = {one.probe.id: one for one in await try_probes(wanted, Ground(opening, {}))}
    return [_inside(name, [results[one] for one in probes]) for name, probes in _INSIDE.items()]


def _inside(name: str, results: list[Result]) -> Check:
    opened = [_said(one) for one in results if one.verdict is Verdict.OPEN]
    untried = [_said(one) for one in results if one.verdict is Verdict.NONE]
    if opened:
        return Check(name, "fail", "; ".join(opened), "see: sandbox-agent escape-test")
    if untried:
        return Check(name, "warn", "could not be tried: " + "; ".join(untried), "use an image with python3")
    return Check(name, "ok", "tried from inside: " + " ".join(one.probe.proves for one in results))


def _said(result: Result) -> str:
    return f"{result.probe.id}: {result.detail or 'it worked'}"
