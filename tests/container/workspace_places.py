"""One folder with everything in it that a workspace mode has to get right, and a sandbox on it in a given mode."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread
import docker
from sandbox_rig import endpoint

from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.filling import fill
from sandbox_agent.sandboxes.docker import DockerSandbox
from sandbox_agent.sandboxes.docker import create as create_sandbox
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.disk import why_no_disk
from sandbox_agent.workspaces.opening import create
from sandbox_agent.workspaces.stored import end_at
from sandbox_agent.workspaces.volume import VolumeWorkspace

SECRET = "hunter2-is-the-secret"
MASKS = (".env", "*.pem", "vault/")
ODD_NAME = "a:b,c d\\e"
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}{'k' * 80}\n-----END OPENSSH PRIVATE KEY-----\n"
DISK_BYTES = 256 * 2**20
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB-public\n-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True)
class Place:
    """A session's workspace with its sandbox running."""

    workspace: Workspace
    sandbox: DockerSandbox
    state: Path
    checkpoints: Checkpoints

    @property
    def host(self) -> Path:
        return self.workspace.host

    async def bash(self, script: str) -> str:
        """stdout and stderr of a script in /workspace that succeeds."""
        result = await self.try_bash(script)
        assert result[0] == 0, result[1]
        return result[1]

    async def end(self) -> None:
        """The session's work is over: its last checkpoint, and no container any more."""
        last = await self.checkpoints.finish()
        assert last is not None
        end_at(self.state, last)
        await self.checkpoints.aclose()
        await self.sandbox.close()

    async def try_bash(self, script: str) -> tuple[int | None, str]:
        """Exit code and output of any script."""
        result = await self.sandbox.exec(["bash", "-c", script], cwd="/workspace", merge_stderr=True)
        return result.exit_code, result.stdout.decode().removesuffix("\n")


def grow(host: Path, owner: int) -> Path:
    """Make the folder. Everything in it belongs to `owner`."""
    host.mkdir(parents=True)
    for folder in ("sub/deep", "conf", "empty", "vault", "ä ö"):
        (host / folder).mkdir(parents=True)
    for name, text in {
        "readme": "one\ntwo\n",
        "sub/deep/f": "deep\n",
        "ä ö/new\nline": "odd\n",
        ".env": SECRET,
        "conf/.env": SECRET,
        "conf/deploy_key": KEY,
        "conf/private.pem": KEY,
        "conf/ca.pem": CERTIFICATE,
        "vault/plain": SECRET,
    }.items():
        (host / name).write_text(text)
    (host / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (host / "run.sh").chmod(0o755)
    (host / "private").write_text("mine\n")
    (host / "private").chmod(0o600)
    (host / "link").symlink_to("readme")
    (host / "nowhere").symlink_to("/does/not/exist")
    os.link(host / ".env", host / "other-name")
    _repositories(host)
    give(host, owner)
    return host


def give(folder: Path, owner: int) -> None:
    """Make everything in a folder someone's own, if we may."""
    if os.getuid() != 0:
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def git(folder: Path, *arguments: str) -> str:
    """git on the host, with nobody's configuration."""
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
    settings = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", *settings, "-c", "safe.directory=*", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=folder, env=quiet, check=True, capture_output=True, text=True).stdout


def _repositories(host: Path) -> None:
    """The folder is a repository with a sub-module, and holds another one besides."""
    library = host.parent / "library"
    for folder in (library, host / "nested"):
        folder.mkdir()
        (folder / "lib.txt").write_text("lib\n")
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "Library")
    git(host, "init", "-q")
    (host / ".gitignore").write_text("nested\n.env\nother-name\nconf\nvault\n")
    git(host, "submodule", "--quiet", "add", str(library), "module")
    git(host, "add", ".")
    git(host, "commit", "-qm", "First")


@asynccontextmanager
async def placed(mode: str, parent: Path, owner: int, *, name: str = ODD_NAME) -> AsyncIterator[Place]:
    """A session of a mode on a new folder in `parent`; all it made is removed at the end."""
    host = grow(parent / name, owner)
    async with opened(mode, host, parent / f"test-{secrets.token_hex(6)}") as place:
        yield place


@asynccontextmanager
async def opened(
    mode: str, host: Path, state: Path, *, transport: Literal["auto", "exec"] = "auto"
) -> AsyncIterator[Place]:
    """A session of a mode on a folder; "volume" is the copy that only the engine holds."""
    volume = f"{state.name}-workspace" if mode == "volume" else ""
    disk: dict[str, Any] = {"disk_bytes": DISK_BYTES, "own_disk": why_no_disk() is None}
    workspace = create("copy" if volume else mode, host, state, masks=MASKS, volume=volume, **disk)
    try:
        async with running(workspace, state, transport=transport) as place:
            yield place
    finally:
        await discard(state, endpoint())


@asynccontextmanager
async def running(
    workspace: Workspace, state: Path, *, transport: Literal["auto", "exec"] = "auto"
) -> AsyncIterator[Place]:
    """A container for a workspace."""
    sandbox: DockerSandbox | None = None
    try:
        await anyio.to_thread.run_sync(workspace.prepare)
        in_volume = isinstance(workspace, VolumeWorkspace)
        spec = SandboxSpec(
            workspace_source=workspace.mount,
            uid=workspace.owner.uid,
            gid=workspace.owner.gid,
            session_id=state.name,
            state_dir=None if in_volume else str(state),
            masks=tuple(f"/workspace/{path}" for path in workspace.covers),
            transport=transport,
        )
        sandbox = create_sandbox(spec, endpoint())
        await sandbox.start()
        if isinstance(workspace, VolumeWorkspace):
            await fill(sandbox, workspace)
        checkpoints = Checkpoints(sandbox, workspace, state, emit=lambda event: None, last_seq=lambda: 0)
        await checkpoints.begin()
        try:
            yield Place(workspace, sandbox, state, checkpoints)
        finally:
            await checkpoints.aclose()
    finally:
        if sandbox is not None:
            await sandbox.close()
        workspace.release()


def left_at_engine(session_id: str) -> list[str]:
    """Containers and volumes of a session."""
    client = docker.APIClient(base_url=endpoint().url, version="auto")
    try:
        only = {"label": f"sandbox-agent.session={session_id}"}
        containers = [container["Id"] for container in client.containers(all=True, filters=only)]
        return containers + [volume["Name"] for volume in client.volumes(filters=only)["Volumes"] or ()]
    finally:
        client.close()


def mounts_in(folder: Path) -> list[str]:
    """Mount points below a folder of this machine."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return [point for line in file if (point := line.split(" ")[4]).startswith(str(folder))]
