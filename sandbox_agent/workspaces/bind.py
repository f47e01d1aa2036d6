"""The workspace as the folder itself: tools change it directly, and there is nothing to apply or to take back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.apply import Hunks
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Drift, Kind, Owner
from sandbox_agent.workspaces.entries import examine
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.record import MANIFEST_NAME, Record, remove_remains
from sandbox_agent.workspaces.review import review
from sandbox_agent.workspaces.source import TreeSource
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.survey import note_owners, survey
from sandbox_agent.workspaces.tree import Tree

IN_PLACE = "mode bind: tools change the folder itself, .git included; nothing can be reviewed before or undone"


class BindWorkspace:
    """A `Workspace` of mode "bind". `changes` lists paths; what was there before is gone."""

    mode = "bind"

    def __init__(self, record: Record, state_dir: Path, notes: tuple[str, ...] = ()) -> None:
        self._record = record
        self._state_dir = state_dir
        self._masks = Masks(record.masks)
        self._notes = Notes((IN_PLACE, *notes))
        self._masked: dict[str, str] = {}
        self._covers: tuple[str, ...] = ()
        self._review_notes: tuple[str, ...] = ()

    @classmethod
    def make(cls, record: Record, state_dir: Path, notes: tuple[str, ...]) -> BindWorkspace:
        """Begin a new one."""
        record.save(state_dir)
        return cls(record, state_dir, notes)

    @property
    def host(self) -> Path:
        return self._record.host

    @property
    def source(self) -> Path:
        return self._record.host

    @property
    def mount(self) -> str:
        """See `Workspace.mount`."""
        return str(self.host)

    @property
    def mount_waits(self) -> bool:
        """See `Workspace.mount_waits`."""
        return True

    @property
    def owner(self) -> Owner:
        return self._record.owner

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes.lines + self._review_notes

    @property
    def commits(self) -> tuple[str, ...]:
        """See `Workspace.commits`: all are in the folder already."""
        return ()

    @property
    def masked(self) -> dict[str, str]:
        """See `Workspace.masked`."""
        return dict(self._masked)

    @property
    def covers(self) -> tuple[str, ...]:
        """See `Workspace.covers`. A hidden link needs no cover: what it points to is hidden by its own name."""
        return self._covers

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """Hash every file, once, so that changed ones can be told later."""
        path = self._state_dir / MANIFEST_NAME
        if path.exists():
            self._know(Manifest.load(path))
            return
        with self._tree() as tree:
            found = survey(tree, self._masks, uid=self.owner.uid)
            note_owners(found, self.owner)
            manifest = found.manifest
            for count, (name, entry) in enumerate(manifest.entries.items(), 1):
                if entry.kind is Kind.FILE and entry.hidden is None:
                    manifest.entries[name] = replace(self._entry(tree, name), owner=entry.owner)
                if progress is not None and count % 100 == 0:
                    progress(count)
        manifest.finish()
        manifest.save(path)
        self._know(manifest)

    def _know(self, manifest: Manifest) -> None:
        self._masked = manifest.masked
        self._covers = tuple(path for path in manifest.covered if manifest.entries[path].kind is Kind.FILE)

    def _entry(self, tree: Tree, path: str) -> Entry:
        try:
            with tree.at(path) as place:
                entry = examine(place)
        except OSError as error:
            return Entry(Kind.FILE, hidden=f"not readable ({error.strerror})")
        return entry if entry is not None else Entry(Kind.FILE, hidden="vanished while it was read")

    def changes(self) -> tuple[Change, ...]:
        """See `Workspace.changes`; only additions have a diff."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        with self._tree() as tree:
            source = TreeSource(tree, lambda path: manifest.hidden_by(path) is not None)
            found = review(manifest, source, tree, in_place=True)
        self._review_notes = found.notes
        return found.changes

    def changes_at(self, step: int) -> tuple[Change, ...]:
        """See `Workspace.changes_at`. The checkpoints know what was there before, so every text has a diff."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        stored = StoredSource.at(self._state_dir, step)
        with self._tree() as tree:
            before = stored.before(manifest, tree, seen_through=False)
            return review(before, stored, tree, in_place=True, base_content=stored.base_content).changes

    def drift(self) -> tuple[Drift, ...]:
        """See `Workspace.drift`: nothing can be told, since the session works on the folder itself."""
        return ()

    def settle(self) -> ApplyOutcome | None:
        """See `Workspace.settle`: there is never anything."""
        return None

    def apply(self, paths: Collection[str] | None = None, hunks: Hunks | None = None) -> ApplyOutcome:
        """Does nothing, for everything is there already; the outcome says so by naming all changes as applied."""
        self._notes.say("mode bind: the changes are in the folder already; apply does nothing")
        return ApplyOutcome(applied=tuple(change.path for change in self.changes()))

    def release(self) -> None:
        """See `Workspace.release`: there is nothing."""

    def discard(self) -> None:
        """Forget what was recorded. The changes stay: there is no other copy."""
        remove_remains(self._state_dir)

    def _tree(self) -> Tree:
        try:
            return Tree(self.host)
        except OSError as error:
            why = error.strerror or str(error)
            raise WorkspaceError(f"{self.host}: the folder of this session cannot be opened: {why}") from error
