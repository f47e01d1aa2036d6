"""The workspace as a copy: the person's folder stays as it is until chosen changes are applied to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import WorkspaceMount
from sandbox_agent.workspaces.base import Change, Drift
from sandbox_agent.workspaces.copying import Copier
from sandbox_agent.workspaces.disk import mount_disk
from sandbox_agent.workspaces.drift import drifted_since
from sandbox_agent.workspaces.gated import GatedWorkspace
from sandbox_agent.workspaces.gitrefs import note_refs
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.record import COPY_NAME, MANIFEST_NAME, RECORD_NAME, Record, give_back_mounts
from sandbox_agent.workspaces.removal import remove_tree
from sandbox_agent.workspaces.reviewing import NowThere, as_planned, look
from sandbox_agent.workspaces.source import Source, TreeSource
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.survey import survey
from sandbox_agent.workspaces.tree import Tree

_BLOCK_BYTES = 4096
_EXTRA_BYTES = 512
"""An entry's share in the blocks of its folder, and what a file system needs to find its content."""


class CopyWorkspace(GatedWorkspace):
    """A `Workspace` of mode "copy". Made by `create` or `reopen`."""

    mode = "copy"

    def __init__(self, record: Record, state_dir: Path, notes: tuple[str, ...] = ()) -> None:
        super().__init__(record, state_dir, notes)

    @classmethod
    def make(cls, record: Record, state_dir: Path, notes: tuple[str, ...], *, own_disk: bool = False) -> CopyWorkspace:
        """Begin a new one: the mount point exists afterwards, empty, and belongs to the tools. With `own_disk` it is a
        disk with room for the copy and what the record says."""
        record.save(state_dir)
        workspace = cls(record, state_dir, notes)
        try:
            workspace.source.mkdir(mode=0o700)
        except FileExistsError:
            raise WorkspaceError(f"{workspace.source}: is already there; start a new session") from None
        if own_disk:
            size_bytes, files = workspace._size_now()
            workspace._have_disk(there_bytes=size_bytes, there_files=files)
        if os.geteuid() == 0:
            os.chown(workspace.source, record.owner.uid, record.owner.gid)
        return workspace

    @property
    def source(self) -> Path:
        return self._state_dir / COPY_NAME

    @property
    def place(self) -> Path:
        return self.source

    def _size_now(self) -> tuple[int, int]:
        """What a copy of the folder takes, and in how many entries; holes count."""
        size_bytes = files = 0
        with self._host() as host:
            for found in host.walk(failed=lambda path, error: None):
                files += 1
                size_bytes += -(-found.info.st_size // _BLOCK_BYTES) * _BLOCK_BYTES + _EXTRA_BYTES
        return size_bytes, files

    @property
    def mount(self) -> WorkspaceMount:
        """See `Workspace.mount`."""
        return str(self.source)

    @property
    def mount_waits(self) -> bool:
        """See `Workspace.mount_waits`."""
        return False

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """See `Workspace.prepare`. A copy that was finished once is taken as it is; an unfinished one begins anew."""
        path = self._state_dir / MANIFEST_NAME
        try:
            mount_disk(self._state_dir, self.place)
        except OSError as error:
            raise WorkspaceError(f"{self.host}: the disk of the session cannot be mounted: {error}") from error
        if path.exists():
            self._masked = Manifest.load(path).masked
            return
        try:
            for name in os.listdir(self.source):
                remove_tree(self.source, name)
            with Tree(self.host) as source, Tree(self.source) as target:
                masked = survey(source, Masks(self._record.masks), uid=os.lstat(self.host).st_uid).hidden
                copier = Copier(source, target, owner=self.owner, masked=masked, notes=self._notes, progress=progress)
                manifest = copier.run()
            note_refs(self.host, manifest, self._state_dir)
            manifest.save(path)
        except OSError as error:
            raise WorkspaceError(f"{self.host}: cannot be copied into the session: {error}") from error
        self._masked = manifest.masked

    def drift(self) -> tuple[Drift, ...]:
        """See `Workspace.drift`. Only what changed after the session began is read."""
        began_ns = os.lstat(self._state_dir / RECORD_NAME).st_mtime_ns
        with self._host() as host:
            return drifted_since(Manifest.load(self._state_dir / MANIFEST_NAME), host, began_ns)

    def changes(self) -> tuple[Change, ...]:
        """See `Workspace.changes`."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        with self._on_disk(), self._host() as host, self._source(host) as source:
            self._review = look(manifest, source, host)
        return self._review.changes

    def changes_at(self, step: int) -> tuple[Change, ...]:
        """See `Workspace.changes_at`."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        with self._host() as host:
            return look(manifest, StoredSource.at(self._state_dir, step), host).changes

    def release(self) -> None:
        """See `Workspace.release`: the mount of the session's own disk goes."""
        give_back_mounts(self._state_dir)

    @contextmanager
    def _source(self, host: Tree) -> Iterator[Source]:
        """The last checkpoint; the copy itself where the session ended before that was taken."""
        try:
            copy = Tree(self.source, grant=True)
        except OSError as error:
            raise WorkspaceError(f"{self.source}: the session's copy cannot be opened: {error}") from error
        with copy:
            spare = TreeSource(copy)
            yield StoredSource.of(self._state_dir, spare=spare) or spare

    def _now_there(self, host: Tree) -> NowThere:
        return as_planned
