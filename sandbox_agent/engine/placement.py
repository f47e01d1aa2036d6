"""Which workspace mode a run gets, and why: overlay where it really works, else a copy.

"Really" is tried, not guessed: layers over the very folder are mounted through the engine in a sandbox as sessions get
it, and what it reads and writes is compared. That takes about a second, so the answer is kept in the state folder, for
this engine, its version, the kernel and the two file systems, until a start fails.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.config import state_dir
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.lock import SessionLock, in_use
from sandbox_agent.errors import SandboxAgentError, SandboxUnavailableError, WorkspaceError
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.sandboxes.endpoint import Endpoint, identify
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.types import WORKSPACE_MOUNT, WorkspaceMount
from sandbox_agent.workspaces.base import Owner
from sandbox_agent.workspaces.disk import has_disk, make_disk, why_no_disk
from sandbox_agent.workspaces.folder import owner_of, writable
from sandbox_agent.workspaces.mounting import mounts_below
from sandbox_agent.workspaces.opening import create
from sandbox_agent.workspaces.overlay import MASKS, UPPER
from sandbox_agent.workspaces.record import COPY_NAME, OVERLAY_NAME

AUTO = "auto"
KNOWN_FILE = "engines.json"

_TRIAL = "trial-"
_TRIAL_BYTES = 64 * 2**20
_UNSEEN = "the engine does not see this machine's files"
_SCRIPT = """
cd /workspace && printf '%s\\0' "$(cat MARKER/read)" && printf x > MARKER/written
for name in .* *; do
    if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\\0' "$name"; fi
done
"""


@dataclass(frozen=True, slots=True)
class Ability:
    """What was found out about an engine: why no overlay works, None if it does; whether it sees our files at all; why
    a session gets no disk of its own, None if it does."""

    no_overlay: str | None
    sees_files: bool
    no_disk: str | None


@dataclass(frozen=True, slots=True)
class Placement:
    """`mode` is overlay, copy or bind. `in_volume`: only the engine can hold the copy. `why` is why it is no overlay,
    None if it is one or the mode was asked for by name. `no_disk` is why the policy's disk limit is only watched."""

    mode: str
    in_volume: bool = False
    why: str | None = None
    no_disk: str | None = None

    @property
    def own_disk(self) -> bool:
        """Whether what the session writes goes to a disk of its own."""
        return self.mode in ("overlay", "copy") and not self.in_volume and self.no_disk is None

    @property
    def line(self) -> str:
        """For the person, at the start and from `doctor`."""
        if self.mode == "overlay":
            return "workspace mode overlay: tried, and it works here"
        where = " in a volume of the engine" if self.in_volume else ""
        return f"workspace mode {self.mode}{where}" + (f", no overlay: {self.why}" if self.why else "")


async def place(wanted: str, host: Path, endpoint: Endpoint, image: str, *, fresh: bool = False) -> Placement:
    """The mode for a run on a folder.

    Args:
        wanted: what the run asks for; "auto" lets us decide.
        host: the person's folder, links resolved.
        endpoint: where the engine is, local or not.
        image: for the trial.
        fresh: try, whatever is known.

    Raises:
        SandboxUnavailableError: the engine does not answer, or has not this image.
        WorkspaceError: the mode asked for cannot be had on this engine.
        OSError: the state folder cannot be written.
    """
    key = await anyio.to_thread.run_sync(_key, endpoint, host)
    ability = None if fresh else _known().get(key)
    no_disk = why_no_disk()
    local = endpoint.url.startswith("unix:")
    if wanted != AUTO and ability is None and local and (no_disk is not None or wanted == "bind"):
        return Placement(wanted, no_disk=no_disk)  # what is not so at a local socket, the start will tell
    if ability is None:
        ability = await _find_out(host, endpoint, image)
        _remember(key, ability)
    if wanted in ("overlay", "bind") and not ability.sees_files:
        raise WorkspaceError(f"workspace mode {wanted}: {_UNSEEN} ({endpoint}); use --workspace-mode copy")
    if wanted != AUTO:
        return Placement(wanted, in_volume=not ability.sees_files, no_disk=ability.no_disk)
    inside = await anyio.to_thread.run_sync(mounts_below, host)
    why = f"another file system is mounted at {inside[0]}" if inside else ability.no_overlay
    if why is None and not writable(host):
        why = "the folder is somebody else's, and not yours to write"  # in a copy all of it is the tools' own
    if not ability.sees_files:
        why = _UNSEEN
    if why is None:
        return Placement("overlay", no_disk=ability.no_disk)
    return Placement("copy", not ability.sees_files, why, ability.no_disk)


def forget() -> None:
    """Drop what is known of all engines: a start has failed."""
    (state_dir() / KNOWN_FILE).unlink(missing_ok=True)


async def _find_out(host: Path, endpoint: Endpoint, image: str) -> Ability:
    no_disk = why_no_disk()
    tried: list[str] = []
    for own_disk in (True, False) if no_disk is None else (False,):
        no_overlay = await _try_overlay(host, endpoint, image, own_disk)
        if no_overlay is None or await _try_bind(owner_of(host), endpoint, image, own_disk):
            return Ability(no_overlay, True, None if own_disk else no_disk or " / ".join(tried))
        tried.append(no_overlay)
    return Ability(no_overlay, False, no_disk or _UNSEEN)


async def _try_overlay(host: Path, endpoint: Endpoint, image: str, own_disk: bool) -> str | None:
    """Mount layers over the folder as a session would; None if all is as it must be, else what was not."""
    async with trial_folder(endpoint, image) as folder:
        try:
            make = partial(create, "overlay", host, folder, disk_bytes=_TRIAL_BYTES, own_disk=own_disk)
            workspace = await anyio.to_thread.run_sync(make)
            if own_disk and not has_disk(folder):
                return getattr(workspace, "no_disk", None) or "no disk could be made"
            layers = folder / OVERLAY_NAME
            marker, content = _mark(layers / MASKS, workspace.owner)
            read, names = await _ask_inside(workspace.mount, workspace.owner, endpoint, image, folder, marker)
        except SandboxUnavailableError:
            raise
        except (SandboxAgentError, OSError) as exc:
            return " ".join(str(exc).split())[-300:]
        if read != content:
            return _UNSEEN
        if names - {b".", b"..", marker.encode()} != set(os.listdir(os.fsencode(host))):
            return f"the engine sees another folder at {host}"
        return _written(layers / UPPER / marker / "written", workspace.owner)


async def _try_bind(owner: Owner, endpoint: Endpoint, image: str, own_disk: bool) -> bool:
    async with trial_folder(endpoint, image) as folder:
        place = folder / COPY_NAME
        place.mkdir(mode=0o755)
        if own_disk:
            try:
                await anyio.to_thread.run_sync(make_disk, folder, place, _TRIAL_BYTES)
            except OSError:
                return False
            place.chmod(0o755)
        marker, content = _mark(place, owner)
        try:
            read, _ = await _ask_inside(str(place), owner, endpoint, image, folder, marker)
        except SandboxUnavailableError:
            raise
        except SandboxAgentError:
            return False
        return read == content


def _written(path: Path, owner: Owner) -> str | None:
    try:
        info = os.lstat(path)
    except OSError:
        return "what is written inside does not arrive"
    if (info.st_uid, info.st_gid) != (owner.uid, owner.gid):
        return f"the engine gives files to another user ({info.st_uid}:{info.st_gid})"
    return None


def _mark(layer: Path, owner: Owner) -> tuple[str, bytes]:
    """A folder of the tools' own with something in it to be read: its name and that content."""
    marker, content = f".sandbox-agent-{secrets.token_hex(8)}", secrets.token_hex(8)
    place = layer / marker
    place.mkdir(mode=0o700)
    (place / "read").write_text(content)
    if os.geteuid() == 0:
        for path in (place / "read", place):
            os.chown(path, owner.uid, owner.gid)
    return marker, content.encode()


async def _ask_inside(
    mount: WorkspaceMount, owner: Owner, endpoint: Endpoint, image: str, folder: Path, marker: str
) -> tuple[bytes, set[bytes]]:
    """What a sandbox reads in the marked folder, and the names at the top of its workspace."""
    module = await anyio.to_thread.run_sync(registry.load, "sandboxes", "docker")
    spec = SandboxSpec(
        workspace_source=mount,
        uid=owner.uid,
        gid=owner.gid,
        groups=owner.groups,
        session_id=folder.name,
        state_dir=str(folder),
        image=image,
        transport="exec",
        lifetime_s=120,
    )
    sandbox: Sandbox = module.create(spec, endpoint)
    try:
        await sandbox.start()
        said = await sandbox.exec(["sh", "-c", _SCRIPT.replace("MARKER", marker)], cwd=WORKSPACE_MOUNT, timeout_s=20)
    finally:
        await sandbox.close()
    read, *names = said.stdout.rstrip(b"\0").split(b"\0")
    return read, set(names)


@asynccontextmanager
async def trial_folder(endpoint: Endpoint, image: str) -> AsyncIterator[Path]:
    """A state folder for a container that is no session's; gone afterwards, with all that the engine keeps for it."""
    folder = state_dir() / f"{_TRIAL}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    lock = SessionLock(folder)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await discard(folder, endpoint, image=image)
            await anyio.to_thread.run_sync(shutil.rmtree, folder)
        lock.release()


async def remove_dead_trials(parent: Path, endpoint: Endpoint | None) -> None:
    """Remove trial folders whose process was killed.

    Raises:
        OSError, SandboxUnavailableError, SandboxStartError: see `discard`.
    """
    for folder in parent.glob(f"{_TRIAL}*"):
        if not in_use(folder):
            await discard(folder, endpoint)
            await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))


def _key(endpoint: Endpoint, host: Path) -> str:
    """All that the answer depends on, as far as it can be known."""
    engine = identify(endpoint)
    owner = "root" if os.lstat(host).st_uid == 0 else "other"
    devices = f"{os.lstat(state_dir()).st_dev:x} {os.lstat(host).st_dev:x}"
    # The address too: engines on one machine may share their ID, and not see the same files.
    return f"{endpoint.url} {engine.id} {engine.version} {engine.kernel} {devices} {os.geteuid()} {owner}"


def _known() -> dict[str, Ability]:
    """What was found out before; a file that cannot be used counts as none."""
    try:
        raw = json.loads((state_dir() / KNOWN_FILE).read_text())
        return {
            str(key): Ability(value["no_overlay"], bool(value["sees_files"]), value["no_disk"])
            for key, value in raw.items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _remember(key: str, ability: Ability) -> None:
    path = state_dir() / KNOWN_FILE
    part = path.with_name(f"{KNOWN_FILE}.{secrets.token_hex(4)}")
    known = {**_known(), key: ability}
    part.write_text(json.dumps({name: asdict(value) for name, value in known.items()}, indent=1))
    part.replace(path)
