"""What an apply is about to do, written down before the first change, and what was there before, kept for good.

Killed at any point, an apply is taken up again from this: every step leads from what was there to what was chosen, and
doing one twice is harmless. Afterwards the file stays as the record of the before-images, whatever becomes of the copy.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.drift import GONE
from sandbox_agent.workspaces.manifest import entry_from_json, entry_to_json
from sandbox_agent.workspaces.record import APPLYING_NAME
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.stored import NOT_KEPT
from sandbox_agent.workspaces.tree import Tree

APPLIED_NAME = "applied"
"""In a session's state folder: one file for each apply there was, and in `before/` the contents it replaced."""

VERSION = 1


class NotKeptError(OSError):
    """There is no room for a before-image, or no way to it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an apply in the order they are done.

    `partial` are paths of which some hunks were chosen: their step leads to a text made for it, which the store has.
    `droppable` are folders that go with the last thing they hold.
    """

    steps: tuple[Difference, ...]
    partial: frozenset[str] = frozenset()
    droppable: frozenset[str] = frozenset()


class Ledger:
    """The plan and the before-images in one session's state folder. One process at a time."""

    def __init__(self, state_dir: Path) -> None:
        """Nothing is made before something is kept."""
        self._path = state_dir / APPLYING_NAME
        self._folder = state_dir / APPLIED_NAME
        self.store = Store(self._folder / "before")

    def keep_before(self, difference: Difference, host: Tree) -> None:
        """Keep the content that a step will replace or remove.

        Raises:
            NotKeptError: it cannot be kept.
            OSError: it cannot be read. That something else is there by now is for the step to find.
        """
        before = difference.before
        if before is None or before.kind is not Kind.FILE or difference.kind == "mode":
            return
        if before.sha256 in (None, GONE, NOT_KEPT) or self._has(before.sha256):
            return  # of the first nobody knows what they were, so that the step is a conflict
        try:
            with host.at(difference.path) as place:
                if place.stat() is None:
                    return
                fd = place.open_file()
        except FileNotFoundError:
            return
        try:
            self.store.put_file(fd)
        except OSError as error:
            raise NotKeptError(error.errno, error.strerror) from error
        finally:
            os.close(fd)

    def _has(self, sha256: str) -> bool:
        try:
            return self.store.has(sha256)
        except OSError as error:
            raise NotKeptError(error.errno, error.strerror) from error

    def begin(self, plan: Plan) -> None:
        """Write the plan to disk, whole or not at all."""
        document = {
            "version": VERSION,
            "steps": [_to_json(step) for step in plan.steps],
            "partial": sorted(plan.partial),
            "droppable": sorted(plan.droppable),
        }
        part = self._path.with_name(f"{APPLYING_NAME}.part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(json.dumps(document, separators=(",", ":")))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        _sync_folder(self._path.parent)

    def pending(self) -> Plan | None:
        """The plan of an apply that was interrupted.

        Raises:
            WorkspaceError: it cannot be read.
        """
        try:
            raw = json.loads(self._path.read_text())
            if raw["version"] != VERSION:
                raise ValueError(f"version {raw['version']}, this is {VERSION}")
            steps = tuple(_from_json(step) for step in raw["steps"])
            return Plan(steps, frozenset(raw["partial"]), frozenset(raw["droppable"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(
                f"{self._path}: the record of an interrupted apply cannot be used ({error}); "
                "look at the folder, then remove this file"
            ) from error

    def end(self) -> None:
        """The apply is done: its plan becomes the record of what was there before."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path.replace(self._folder / f"{len(list(self._folder.glob('*.json'))):06d}.json")
        self.store.sweep()


def interrupted(state_dir: Path) -> bool:
    """Whether an apply of this session was begun and not ended."""
    return (state_dir / APPLYING_NAME).exists()


def _to_json(step: Difference) -> JsonObject:
    return {
        "path": step.path,
        "kind": step.kind,
        "before": entry_to_json(step.before) if step.before is not None else None,
        "after": entry_to_json(step.after) if step.after is not None else None,
    }


def _from_json(raw: JsonObject) -> Difference:
    before, after = (entry_from_json(raw[side]) if raw[side] is not None else None for side in ("before", "after"))
    return Difference(raw["path"], raw["kind"], before, after)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
