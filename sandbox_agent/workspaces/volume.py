"""The workspace as a copy that only the engine holds: for engines that see no file of this machine.

It is filled through the sandbox once that has started, and outlives the container as a volume. What the session did is
known here by its checkpoints alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import VolumeMount
from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.gitrefs import note_refs
from sandbox_agent.workspaces.manifest import Entry, Manifest, in_git
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.packing import pack
from sandbox_agent.workspaces.record import LAST_STEP_NAME, MANIFEST_NAME, Record
from sandbox_agent.workspaces.source import ContentError, Scan, Source
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Steps
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.survey import survey
from sandbox_agent.workspaces.tree import Tree


class VolumeWorkspace(CopyWorkspace):
    """A `Workspace` of mode "copy" without a copy on this machine. Made by `create` or `reopen`."""

    @classmethod
    def make(
        cls, record: Record, state_dir: Path, notes: tuple[str, ...], *, own_disk: bool = False
    ) -> VolumeWorkspace:
        """Begin a new one; the engine makes the volume with the container, and no disk of ours."""
        record.save(state_dir)
        return cls(record, state_dir, notes)

    @property
    def mount(self) -> VolumeMount:
        """See `Workspace.mount`."""
        return VolumeMount(self._record.volume, filled=self.filled)

    @property
    def filled(self) -> bool:
        """Whether the volume holds the copy, complete."""
        return self._manifest_path.exists()

    @property
    def interrupted(self) -> bool:
        """Whether tools may have changed the copy after the last checkpoint that is known here."""
        began = bool(Steps(self._state_dir / CHECKPOINTS_NAME).headers())
        return began and not (self._state_dir / LAST_STEP_NAME).exists()

    @property
    def _manifest_path(self) -> Path:
        return self._state_dir / MANIFEST_NAME

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """See `Workspace.prepare`: there is nothing to do before the container runs."""
        if self.filled:
            self._masked = Manifest.load(self._manifest_path).masked

    def fill(self, write: Callable[[bytes], None]) -> Manifest:
        """Write the folder as tar. The copy counts as complete only after `keep`.

        Args:
            write: takes the stream piece by piece; an exception from it ends the work.

        Raises:
            WorkspaceError: the folder cannot be read.
        """
        try:
            with Tree(self.host) as tree:
                found = survey(tree, Masks(self._record.masks), uid=os.lstat(self.host).st_uid)
                manifest = pack(tree, found, write, self._notes)
        except (BrokenPipeError, ConnectionError):
            raise
        except OSError as error:
            raise WorkspaceError(f"{self.host}: cannot be copied into the session: {error}") from error
        self._masked = manifest.masked
        return manifest

    def keep(self, manifest: Manifest) -> None:
        """The volume holds exactly this. Raises OSError: it cannot be noted."""
        note_refs(self.host, manifest, self._state_dir)
        manifest.save(self._manifest_path)

    @contextmanager
    def _source(self, host: Tree) -> Iterator[Source]:
        source = StoredSource.of(self._state_dir)
        if source is not None:
            yield source
        elif not self.interrupted:
            yield _AsFilled()  # no tool writes before the first checkpoint
        else:
            raise WorkspaceError(
                f"session {self._state_dir.name} was interrupted, and its copy is in a volume of the engine: "
                f"go on with it (sandbox-agent run --resume {self._state_dir.name}) to see what it changed"
            )


class _AsFilled:
    """The copy as it was made."""

    def scan(self, manifest: Manifest, notes: Notes) -> Scan:
        """See `Source.scan`."""
        seen = {path: entry for path, entry in manifest.entries.items() if entry.hidden is None}
        return Scan({p: e for p, e in seen.items() if not in_git(p)}, {p for p in seen if in_git(p)})

    @contextmanager
    def open(self, path: str, entry: Entry) -> Iterator[int]:
        """See `Source.open`."""
        raise ContentError("its content was not kept")
        yield
