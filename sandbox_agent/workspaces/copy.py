"""The workspace as a copy: the person's folder stays as it is until chosen changes are applied to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import WorkspaceMount
from sandbox_agent.workspaces.apply import Hunks
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Drift, Owner
from sandbox_agent.workspaces.copying import Copier
from sandbox_agent.workspaces.drift import drifted_since
from sandbox_agent.workspaces.gitrefs import note_refs
from sandbox_agent.workspaces.ledger import interrupted
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.record import COPY_NAME, MANIFEST_NAME, RECORD_NAME, Record, remove_remains
from sandbox_agent.workspaces.removal import remove_tree
from sandbox_agent.workspaces.review import Review
from sandbox_agent.workspaces.reviewing import Bringer, as_planned, look
from sandbox_agent.workspaces.source import Source, TreeSource
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.survey import survey
from sandbox_agent.workspaces.tree import Tree


class CopyWorkspace:
    """A `Workspace` of mode "copy". Made by `create` or `reopen`."""

    mode = "copy"

    def __init__(self, record: Record, state_dir: Path, notes: tuple[str, ...] = ()) -> None:
        self._record = record
        self._state_dir = state_dir
        self._notes = Notes(notes)
        self._review: Review | None = None
        self._masked: dict[str, str] = {}

    @classmethod
    def make(cls, record: Record, state_dir: Path, notes: tuple[str, ...]) -> CopyWorkspace:
        """Begin a new one: the mount point exists afterwards, empty, and belongs to the tools."""
        record.save(state_dir)
        workspace = cls(record, state_dir, notes)
        try:
            workspace.source.mkdir(mode=0o700)
        except FileExistsError:
            raise WorkspaceError(f"{workspace.source}: is already there; start a new session") from None
        if os.geteuid() == 0:
            os.chown(workspace.source, record.owner.uid, record.owner.gid)
        return workspace

    @property
    def host(self) -> Path:
        return self._record.host

    @property
    def source(self) -> Path:
        return self._state_dir / COPY_NAME

    @property
    def mount(self) -> WorkspaceMount:
        """See `Workspace.mount`."""
        return str(self.source)

    @property
    def mount_waits(self) -> bool:
        """See `Workspace.mount_waits`."""
        return False

    @property
    def owner(self) -> Owner:
        return self._record.owner

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes.lines + (self._review.notes if self._review is not None else ())

    @property
    def commits(self) -> tuple[str, ...]:
        """See `Workspace.commits`."""
        return self._review.commits if self._review is not None else ()

    @property
    def masked(self) -> dict[str, str]:
        """See `Workspace.masked`."""
        return dict(self._masked)

    @property
    def covers(self) -> tuple[str, ...]:
        """See `Workspace.covers`: none."""
        return ()

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """See `Workspace.prepare`. A copy that was finished once is taken as it is; an unfinished one begins anew."""
        path = self._state_dir / MANIFEST_NAME
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
        with self._host() as host, self._source() as source:
            self._review = look(manifest, source, host)
        return self._review.changes

    def apply(self, paths: Collection[str] | None = None, hunks: Hunks | None = None) -> ApplyOutcome:
        """See `Workspace.apply`. What is brought over is what `changes` last told; anything else is a conflict."""
        self.settle()
        if self._review is None:
            self.changes()
        assert self._review is not None
        with self._host() as host, self._source() as source:
            outcome = self._bringer().bring(self._review, source, host, paths, hunks)
        if outcome.partial:
            self._review = None
        return outcome

    def settle(self) -> ApplyOutcome | None:
        """See `Workspace.settle`."""
        if not interrupted(self._state_dir):
            return None
        self._review = None
        with self._host() as host, self._source() as source:
            return self._bringer().settle(source, host)

    def _bringer(self) -> Bringer:
        return Bringer(self._record, self._state_dir, as_planned)

    def release(self) -> None:
        """See `Workspace.release`: there is nothing."""

    def discard(self) -> None:
        """See `Workspace.discard`."""
        remove_remains(self._state_dir)

    def _host(self) -> Tree:
        try:
            return Tree(self.host)
        except OSError as error:
            raise WorkspaceError(f"{self.host}: the folder of this session cannot be opened: {error}") from error

    @contextmanager
    def _source(self) -> Iterator[Source]:
        """The last checkpoint; the copy itself where the session ended before that was taken."""
        try:
            copy = Tree(self.source, grant=True)
        except OSError as error:
            raise WorkspaceError(f"{self.source}: the session's copy cannot be opened: {error}") from error
        with copy:
            spare = TreeSource(copy)
            yield StoredSource.of(self._state_dir, spare=spare) or spare
