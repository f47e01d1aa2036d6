"""Commits made inside come out as a bundle or as patches: git runs in a sandbox over the kept workspace, never here.

Whatever it says is data from a hostile place: names are checked, sizes bounded, and nothing of it is executed.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.engine.container import recorded_spec
from sandbox_agent.errors import ConfigError, SandboxError
from sandbox_agent.sandboxes.base import MIB, Sandbox
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.gitrefs import OBJECT, changed_refs, noted_refs

MAX_BUNDLE_BYTES = 4 * 1024 * MIB
MAX_PATCH_BYTES = 32 * MIB
MAX_PATCHES = 1000
MAX_NAMES_BYTES = 8 * MIB
GIT_S = 300.0
LIFETIME_S = 3600

_REF = re.compile(r"(?:HEAD|refs/(?:heads|tags)/[A-Za-z0-9][A-Za-z0-9._+@/=-]*)\Z")
"""Of the names git allows, those that can do nothing in a terminal, a shell or another git."""

_HEADS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_SLUG = re.compile(r"[^A-Za-z0-9._]+")
_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Commits:
    """What is new in one repository: `refs` that changed with their objects, `known` the objects there were before.

    `left_out` are changed refs with names that are not taken out.
    """

    repository: str
    refs: Mapping[str, str]
    known: tuple[str, ...]
    count: int
    left_out: tuple[str, ...] = ()

    def revisions(self, *names: str) -> bytes:
        """For git's --stdin: these, without what there was before."""
        return "".join(f"{line}\n" for line in (*names, *(f"^{sha}" for sha in self.known))).encode()


@asynccontextmanager
async def exporting(
    workspace: Workspace, state_dir: Path, repository: str, endpoint: Endpoint
) -> AsyncIterator[Exporter]:
    """A sandbox over a kept workspace, for as long as it takes; the session's lock must be held.

    Args:
        workspace: of the session.
        state_dir: the session's folder.
        repository: its folder in the workspace, "" for the workspace itself.
        endpoint: the engine.

    Raises:
        ConfigError: the repository is no plain path.
        SandboxError: no sandbox can be had.
    """
    if any(part in ("", ".", "..") for part in repository.split("/")) and repository:
        raise ConfigError(f"--repo {repository!r}: give a path in the workspace, such as libs/parser")
    await anyio.to_thread.run_sync(workspace.prepare)
    module = await anyio.to_thread.run_sync(registry.load, "sandboxes", "docker")
    spec = await anyio.to_thread.run_sync(recorded_spec, workspace, state_dir)
    sandbox: Sandbox = module.create(replace(spec, lifetime_s=LIFETIME_S), endpoint)
    try:
        await sandbox.start()
        yield Exporter(sandbox, state_dir, repository)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
            await anyio.to_thread.run_sync(workspace.release)


class Exporter:
    """Asks the git inside. Made by `exporting`."""

    def __init__(self, sandbox: Sandbox, state_dir: Path, repository: str) -> None:
        self._sandbox = sandbox
        self._state_dir = state_dir
        self._repository = repository
        self._folder = f"{WORKSPACE_MOUNT}/{repository}".rstrip("/")

    async def find(self) -> Commits:
        """What is new since the session began.

        Raises:
            ConfigError: there is no repository.
            SandboxError: git does not answer as git does.
        """
        start = noted_refs(self._state_dir).get(await self._git_folder(), {})
        text = await self._git("for-each-ref", "--format=%(objectname) %(refname)")
        now = {name: sha for sha, _, name in (line.partition(" ") for line in text.split("\n")) if OBJECT.match(sha)}
        head = (await self._git("rev-parse", "--verify", "--quiet", "HEAD", accepted=(0, 1))).strip()
        if OBJECT.match(head):
            now["HEAD"] = head
        changed = changed_refs(start, now)
        refs = {name: sha for name, sha in changed.items() if _REF.match(name) and ".." not in name}
        known = tuple(sorted(set(start.values())))
        found = Commits(self._repository, refs, known, 0, tuple(sorted(changed.keys() - refs.keys())))
        if not refs:
            return found
        said = await self._git(
            "rev-list", "--count", "--ignore-missing", "--stdin", stdin=found.revisions(*refs.values())
        )
        count = int(said) if said.strip().isdigit() else 0
        return Commits(self._repository, refs, known, count, found.left_out)

    async def _git_folder(self) -> str:
        try:
            said = await self._git("rev-parse", "--absolute-git-dir")
        except (SandboxError, NotADirectoryError, FileNotFoundError) as error:
            where = self._repository or "the workspace"
            raise ConfigError(f"{where}: no git repository inside ({error})") from error
        return said.strip().removeprefix(WORKSPACE_MOUNT).lstrip("/")

    async def bundle(self, commits: Commits, target: Path) -> int:
        """Write a bundle of the changed refs; returns its size in bytes.

        Raises:
            ConfigError: the file is there already, or cannot be written.
            SandboxError: what came is no such bundle, or is too large; nothing is left of it.
        """
        fd = _create(target)
        try:
            with os.fdopen(fd, "wb") as file:
                size = await self._stream(commits, file.fileno())
        except BaseException:
            target.unlink()
            raise
        return size

    async def _stream(self, commits: Commits, fd: int) -> int:
        argv = ["git", "bundle", "create", "--quiet", "-", "--ignore-missing", "--stdin"]
        stream = await self._sandbox.open(argv, cwd=self._folder, env=_ENVIRONMENT)
        head, size = b"", 0
        try:
            with anyio.fail_after(GIT_S):
                await stream.send(commits.revisions(*commits.refs))
                await stream.send_eof()
                while chunk := await stream.receive():
                    size += len(chunk)
                    if size > MAX_BUNDLE_BYTES:
                        raise SandboxError(
                            f"the bundle is larger than {MAX_BUNDLE_BYTES // MIB} MiB; nothing was written"
                        )
                    if len(head) < MAX_NAMES_BYTES:
                        head += chunk
                    await anyio.to_thread.run_sync(_write, fd, chunk)
                code = await stream.exit_code()
        except TimeoutError:
            raise SandboxError(f"git took longer than {GIT_S:g} s; nothing was written") from None
        finally:
            await stream.aclose()
        if code != 0:
            raise SandboxError(f"git inside did not make a bundle (exit code {code}); nothing was written")
        _check_bundle(head, commits)
        await anyio.to_thread.run_sync(os.fsync, fd)
        return size

    async def patches(self, commits: Commits, target: Path) -> list[str]:
        """Write the new commits of HEAD, oldest first, one file each; returns the files' names.

        Merges have no patch and are left out.

        Raises:
            ConfigError: the folder is there and not empty, or cannot be written.
            SandboxError: git does not answer, or there are too many or too large ones.
        """
        wanted = ("rev-list", "--reverse", "--topo-order", "--no-merges", "--ignore-missing", "--stdin")
        text = await self._git(*wanted, stdin=commits.revisions("HEAD"))
        shas = [line for line in text.split("\n") if OBJECT.match(line)]
        if len(shas) > MAX_PATCHES:
            raise SandboxError(f"{len(shas)} commits are more than {MAX_PATCHES} patches; use --bundle")
        _make_folder(target)
        names = []
        for number, sha in enumerate(shas, 1):
            made = await self._patch(sha)
            name = f"{number:04d}-{_slug(made)}.patch"
            with os.fdopen(_create(target / name), "wb") as file:
                file.write(made)
            names.append(name)
        return names

    async def _patch(self, sha: str) -> bytes:
        options = ("--stdout", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-signature", "-1")
        return (await self._git("format-patch", *options, sha, limit=MAX_PATCH_BYTES)).encode(
            "utf-8", "surrogateescape"
        )

    async def _git(
        self, *arguments: str, stdin: bytes = b"", accepted: tuple[int, ...] = (0,), limit: int = MAX_NAMES_BYTES
    ) -> str:
        ended = await self._sandbox.exec(
            ["git", *arguments],
            stdin=stdin,
            cwd=self._folder,
            env=_ENVIRONMENT,
            timeout_s=GIT_S,
            max_output_bytes=limit,
        )
        if ended.truncated or ended.timed_out:
            raise SandboxError(f"git {arguments[0]} inside says more, or takes longer, than is taken")
        if ended.exit_code not in accepted:
            reason = " ".join(ended.stderr.decode("utf-8", "replace").split())[-300:]
            raise SandboxError(f"git {arguments[0]} inside failed: {reason or ended.exit_code}")
        return ended.stdout.decode("utf-8", "surrogateescape")


def _check_bundle(head: bytes, commits: Commits) -> None:
    """The bundle's own list of refs must be what was asked for: it is what a fetch will offer."""
    lines, end, _ = head.partition(b"\n\n")
    first, _, rest = lines.partition(b"\n")
    offered = set()
    for line in rest.split(b"\n"):
        if line and line[:1] not in (b"-", b"@"):
            offered.add(line.partition(b" ")[2].decode("utf-8", "replace"))
    if not end or first + b"\n" not in _HEADS or not offered or not offered <= commits.refs.keys():
        raise SandboxError("what came out of the sandbox is no bundle of the commits asked for; nothing was written")


def _slug(patch: bytes) -> str:
    """A file name from the subject, as git makes it, of harmless characters."""
    for line in patch.decode("utf-8", "replace").split("\n"):
        if line.startswith("Subject: "):
            text = re.sub(r"^\[PATCH[^]]*\] ", "", line.removeprefix("Subject: "))
            return _SLUG.sub("-", text).strip("-.")[:52] or "patch"
    return "patch"


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise ConfigError(f"{path}: is there already; give another name") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
        used = any(path.iterdir())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be used: {error.strerror}") from error
    if used:
        raise ConfigError(f"{path}: is not empty; give another folder")


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
