"""What the modes share whose changes pass the review gate: what they say of themselves, apply, and finishing an apply.

How the session's work is looked at, and what the manifest follows, is each mode's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.apply import Hunks
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Owner
from sandbox_agent.workspaces.disk import make_disk, mount_disk
from sandbox_agent.workspaces.ledger import interrupted
from sandbox_agent.workspaces.mounting import detach
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.record import Record, remove_remains
from sandbox_agent.workspaces.review import Review
from sandbox_agent.workspaces.reviewing import Bringer, NowThere
from sandbox_agent.workspaces.source import Source
from sandbox_agent.workspaces.tree import Tree


class GatedWorkspace(ABC):
    """The common part of `CopyWorkspace` and `OverlayWorkspace`. See `Workspace` for what is not described here."""

    def __init__(self, record: Record, state_dir: Path, notes: tuple[str, ...]) -> None:
        self._record = record
        self._state_dir = state_dir
        self._notes = Notes(notes)
        self._review: Review | None = None
        self._masked: dict[str, str] = {}
        self.no_disk: str | None = None
        """Why the session has no disk of its own although it was to have one."""

    @property
    def host(self) -> Path:
        return self._record.host

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

    @property
    @abstractmethod
    def place(self) -> Path:
        """Where what the session writes lies on this machine."""

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        """The session's own disk, where it has one, is mounted. Raises WorkspaceError: it cannot be."""
        try:
            ours = mount_disk(self._state_dir, self.place)
        except OSError as error:
            raise WorkspaceError(f"{self._state_dir}: the disk of the session cannot be mounted: {error}") from error
        try:
            yield
        finally:
            if ours:
                detach(self.place)

    def _have_disk(self, *, there_bytes: int = 0, there_files: int = 0) -> None:
        """Have a disk of the size that the record says; see `no_disk` where it cannot be had."""
        limit = self._record.disk_bytes
        try:
            make_disk(self._state_dir, self.place, limit, there_bytes=there_bytes, there_files=there_files)
        except OSError as error:
            self.no_disk = str(error)

    @abstractmethod
    def changes(self) -> tuple[Change, ...]:
        """See `Workspace.changes`; it becomes the review that `apply` goes by."""

    @abstractmethod
    def changes_at(self, step: int) -> tuple[Change, ...]:
        """See `Workspace.changes_at`."""

    @abstractmethod
    def _source(self, host: Tree) -> AbstractContextManager[Source]:
        """What the session made of the folder: its last checkpoint, else what there is."""

    @abstractmethod
    def _now_there(self, host: Tree) -> NowThere:
        """How the manifest learns what a step left."""

    def apply(self, paths: Collection[str] | None = None, hunks: Hunks | None = None) -> ApplyOutcome:
        """See `Workspace.apply`. What is brought over is what `changes` last told; anything else is a conflict."""
        self.settle()
        if self._review is None:
            self.changes()
        assert self._review is not None
        with self._on_disk(), self._host() as host, self._source(host) as source:
            outcome = self._bringer(host).bring(self._review, source, host, paths, hunks)
        if outcome.partial:
            self._review = None
        return outcome

    def settle(self) -> ApplyOutcome | None:
        """See `Workspace.settle`."""
        if not interrupted(self._state_dir):
            return None
        self._review = None
        with self._on_disk(), self._host() as host, self._source(host) as source:
            return self._bringer(host).settle(source, host)

    def discard(self) -> None:
        """See `Workspace.discard`. Raises LeftToRootError where the kernel's own folder is out of our reach."""
        remove_remains(self._state_dir)

    def _bringer(self, host: Tree) -> Bringer:
        return Bringer(self._record, self._state_dir, self._now_there(host))

    def _host(self) -> Tree:
        try:
            return Tree(self.host)
        except OSError as error:
            why = error.strerror or str(error)
            raise WorkspaceError(f"{self.host}: the folder of this session cannot be opened: {why}") from error
