"""What a session's state folder says about its workspace, so that another process can review, apply or remove it."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Owner
from sandbox_agent.workspaces.disk import remove_disk
from sandbox_agent.workspaces.mounting import detach
from sandbox_agent.workspaces.removal import remove_tree
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Steps

COPY_NAME = "workspace"
OVERLAY_NAME = "overlay"
LOWER_NAME = "lower"
"""In the overlay's folder: a link to the person's folder, or where it is mounted with root's files as the tools'."""

MANIFEST_NAME = "manifest.jsonl"
RECORD_NAME = "workspace.json"
KEPT_NAME = "kept"
REFS_NAME = "refs.json"
"""Git folder, as a path in the workspace, to ref (HEAD too) to object: where everything pointed at the start."""

LAST_STEP_NAME = "last-step.json"
"""The checkpoint that holds all the session has done; not there while it works."""

APPLYING_NAME = "applying.json"
"""What an apply that is under way is to do."""

VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """`masks` are the patterns of the run. `volume` is the engine's volume that holds the copy, "" if a folder does;
    `engine` is that engine's address.

    `disk_bytes` is what the policy lets the session take of the disk; 0 if nothing was said.
    `token` is part of the names of our temporary files in the person's folder: nobody inside can guess it.
    """

    mode: str
    host: Path
    owner: Owner
    token: str
    masks: tuple[str, ...] = ()
    volume: str = ""
    engine: str = ""
    disk_bytes: int = 0

    @classmethod
    def new(
        cls,
        mode: str,
        host: Path,
        owner: Owner,
        masks: tuple[str, ...],
        volume: str = "",
        engine: str = "",
        disk_bytes: int = 0,
    ) -> Record:
        return cls(mode, host, owner, secrets.token_hex(8), masks, volume, engine, disk_bytes)

    @property
    def temporary_prefix(self) -> str:
        return f".sandbox-agent-{self.token}-"

    def save(self, state_dir: Path) -> None:
        """Write it into a folder that has none.

        Raises:
            WorkspaceError: there is one already.
        """
        raw = {
            "version": VERSION,
            "mode": self.mode,
            "host": os.fsencode(self.host).decode("utf-8", "surrogateescape"),
            "owner": [self.owner.uid, self.owner.gid],
            "groups": list(self.owner.groups),
            "token": self.token,
            "masks": list(self.masks),
            "volume": self.volume,
            "engine": self.engine,
            "disk_bytes": self.disk_bytes,
        }
        try:
            with open(os.open(state_dir / RECORD_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(raw) + "\n")
        except FileExistsError:
            raise WorkspaceError(f"{state_dir}: already holds a workspace; reopen it or start a new session") from None

    @classmethod
    def load(cls, state_dir: Path) -> Record:
        """Read it back.

        Raises:
            WorkspaceError: there is none, or it is of another version.
        """
        path = state_dir / RECORD_NAME
        try:
            raw = json.loads(path.read_text())
            if raw["version"] != VERSION:
                raise ValueError(f"version {raw['version']}, this is {VERSION}")
            host = Path(os.fsdecode(raw["host"].encode("utf-8", "surrogateescape")))
            uid, gid = raw["owner"]
            owner = Owner(uid, gid, tuple(raw.get("groups", ())))
            held = {name: raw.get(name, "") for name in ("volume", "engine")}
            disk_bytes = int(raw.get("disk_bytes", 0))
            return cls(raw["mode"], host, owner, raw["token"], tuple(raw["masks"]), **held, disk_bytes=disk_bytes)
        except FileNotFoundError as error:
            why = "all was applied, it was discarded, or nothing ran yet"
            raise WorkspaceError(f"session {state_dir.name} keeps no workspace: {why}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"{path}: cannot be used ({error}); remove the session") from error


def volume_of(state_dir: Path) -> str:
    """The engine's volume that holds a session's copy; "" if a folder does, or nothing can be read of it."""
    try:
        return Record.load(state_dir).volume
    except WorkspaceError:
        return ""


def remove_remains(state_dir: Path) -> None:
    """Remove all that a workspace keeps in its state folder; other files there stay. Safe to call again.

    The record goes first: what is left without it, should this be interrupted, is known to be rubbish.

    Raises:
        LeftToRootError: the kernel's own folder of an overlay is left, and only root can remove it.
        OSError: the system refused.
    """
    (state_dir / RECORD_NAME).unlink(missing_ok=True)
    Steps(state_dir / CHECKPOINTS_NAME).discard()
    give_back_mounts(state_dir)
    for place in (COPY_NAME, OVERLAY_NAME):
        remove_disk(state_dir.resolve(), state_dir.resolve() / place)
    remove_tree(state_dir.resolve(), COPY_NAME)
    _remove_overlay(state_dir.resolve())
    for name in (MANIFEST_NAME, REFS_NAME, LAST_STEP_NAME, APPLYING_NAME):
        (state_dir / name).unlink(missing_ok=True)
        (state_dir / f"{name}.part").unlink(missing_ok=True)
    (state_dir / KEPT_NAME).unlink(missing_ok=True)


def give_back_mounts(state_dir: Path) -> None:
    """Unmount all that a workspace has mounted in its state folder. Safe to call again. Raises OSError: we may not."""
    folder = state_dir.resolve()
    for place in (folder / OVERLAY_NAME / LOWER_NAME, folder / OVERLAY_NAME, folder / COPY_NAME):
        detach(place)


class LeftToRootError(WorkspaceError):
    """`folder`, in a session's state folder, holds what only root can remove."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: holds what the kernel left as root; `sandbox-agent reap` removes it")
        self.folder = folder


def _remove_overlay(state_dir: Path) -> None:
    folder = state_dir / OVERLAY_NAME
    if not folder.is_dir():
        return
    try:
        for name in os.listdir(folder):
            remove_tree(folder, name)
        folder.rmdir()
    except PermissionError:
        raise LeftToRootError(folder) from None
