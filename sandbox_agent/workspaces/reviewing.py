"""Review and apply as every mode with a copy of its own does them, wherever the contents come from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from sandbox_agent.workspaces.apply import Applier, Hunks
from sandbox_agent.workspaces.base import ApplyOutcome, Kind
from sandbox_agent.workspaces.ledger import Ledger
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.record import MANIFEST_NAME, Record
from sandbox_agent.workspaces.review import Difference, Review, review
from sandbox_agent.workspaces.source import Source
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.tree import Tree
from sandbox_agent.workspaces.worker import Done, Worker

NowThere = Callable[[Difference], Entry | None]
"""What the manifest is to say of a path after a step: None is "nothing there"."""

_NEW_FOLDER = Entry(Kind.DIRECTORY, mode=0o755)


def look(manifest: Manifest, source: Source, host: Tree, *, seen_through: bool = False) -> Review:
    """The review of what a source holds; see `StoredSource.before` for `seen_through`."""
    if not isinstance(source, StoredSource):
        return review(manifest, source, host)
    before = source.before(manifest, host, seen_through=seen_through)
    return review(before, source, host, base_content=source.base_content)


class Bringer:
    """Brings changes to the person's folder, and makes the manifest follow."""

    def __init__(self, record: Record, state_dir: Path, now_there: NowThere) -> None:
        self._prefix = record.temporary_prefix
        self._manifest_path = state_dir / MANIFEST_NAME
        self._ledger = Ledger(state_dir)
        self._now_there = now_there

    def bring(
        self, shown: Review, source: Source, host: Tree, paths: Collection[str] | None, hunks: Hunks | None
    ) -> ApplyOutcome:
        """See `Workspace.apply`: what goes is what `shown` has."""
        outcome, done = Applier(shown, source, host, self._prefix, self._ledger).apply(paths, hunks)
        self._follow(done)
        self._ledger.end()
        return outcome

    def settle(self, source: Source, host: Tree) -> ApplyOutcome | None:
        """See `Workspace.settle`."""
        plan = self._ledger.pending()
        if plan is None:
            return None
        before = Manifest.load(self._manifest_path)
        done = Worker(before, source, host, self._prefix, self._ledger.store).run(plan)
        self._follow(done)
        self._ledger.end()
        there = {step.path for step in done.steps}
        return ApplyOutcome(
            tuple(sorted(there - plan.partial)), conflicts=done.conflicts, partial=tuple(sorted(there & plan.partial))
        )

    def _follow(self, done: Done) -> None:
        """What was applied is the folder's state now: later reviews show only the rest."""
        if not done.steps and not done.dropped:
            return
        manifest = Manifest.load(self._manifest_path)
        entries = manifest.entries
        for path in done.dropped:
            entries.pop(path, None)
        for step in done.steps:
            now = self._now_there(step)
            if now is None:
                entries.pop(step.path, None)
                continue
            entries[step.path] = now
            parts = step.path.split("/")
            for count in range(1, len(parts)):
                folder = "/".join(parts[:count])
                if folder not in entries or entries[folder].kind is not Kind.DIRECTORY:
                    entries[folder] = _NEW_FOLDER
        manifest.save(self._manifest_path)


def as_planned(step: Difference) -> Entry | None:
    """For a session that does not see the folder itself: what was brought over, and the copy's own stamp of it."""
    return replace(step.after, hidden=None) if step.after is not None else None
