"""The workspace as an overlay: the person's folder is read through and never written, changes go to a layer of ours.

In the session's state folder, `overlay/` holds the layers: `lower` stands for the person's folder, `masks` hides
secrets above it, `upper` takes every change, `work` is the kernel's. The engine mounts them (see `sandboxes.volumes`),
and `upper` outlives the container. Nothing is copied and nothing is hashed before the first tool.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import OverlayMount
from sandbox_agent.workspaces.base import Change, Drift, View
from sandbox_agent.workspaces.disk import mount_disk, mounted
from sandbox_agent.workspaces.drift import Start, as_started, drifted
from sandbox_agent.workspaces.entries import examine
from sandbox_agent.workspaces.gated import GatedWorkspace
from sandbox_agent.workspaces.gitrefs import note_refs
from sandbox_agent.workspaces.manifest import MASKED_BY, Entry, Manifest, Stamp, stamp
from sandbox_agent.workspaces.masklayer import build, dress
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.mounting import attach_idmapped, is_mounted, merged_view
from sandbox_agent.workspaces.record import (
    LOWER_NAME,
    MANIFEST_NAME,
    OVERLAY_NAME,
    Record,
    give_back_mounts,
    remove_remains,
)
from sandbox_agent.workspaces.removal import remove_tree
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.reviewing import NowThere, look
from sandbox_agent.workspaces.source import LateSource, Source, TreeSource
from sandbox_agent.workspaces.stored import StoredSource
from sandbox_agent.workspaces.survey import Survey, note_owners, survey
from sandbox_agent.workspaces.tree import Tree

MASKS, UPPER, WORK = "masks", "upper", "work"


class OverlayWorkspace(GatedWorkspace):
    """A `Workspace` of mode "overlay". Made by `create` or `reopen`."""

    mode = "overlay"

    def __init__(
        self, record: Record, state_dir: Path, notes: tuple[str, ...] = (), *, view: View | None = None
    ) -> None:
        super().__init__(record, state_dir, notes)
        self._view = view
        self._folder = state_dir / OVERLAY_NAME

    @classmethod
    def make(
        cls,
        record: Record,
        state_dir: Path,
        notes: tuple[str, ...],
        view: View | None = None,
        *,
        own_disk: bool = False,
    ) -> OverlayWorkspace:
        """Begin a new one; with `own_disk` the layers lie on a disk of the size that the record says.

        Raises:
            WorkspaceError: the layers cannot be made; nothing is left of them.
        """
        record.save(state_dir)
        workspace = cls(record, state_dir, notes, view=view)
        try:
            workspace._make_layers(own_disk)
        except OSError as error:
            remove_remains(state_dir)
            raise WorkspaceError(f"{record.host}: no overlay can be laid over it: {error}") from error
        return workspace

    def _make_layers(self, own_disk: bool) -> None:
        self._folder.mkdir(mode=0o700)
        if own_disk:
            self._have_disk()
        for name in (MASKS, UPPER, WORK):
            (self._folder / name).mkdir(mode=0o700)
        top = os.lstat(self.host)
        if os.geteuid() == 0 and top.st_uid == 0:
            self._lower.mkdir(mode=0o700)
            attach_idmapped(self.host, self._lower)
        else:
            # Not the folder's own path: it would be readable in the container, and could be longer than a mount takes.
            self._lower.symlink_to(self.host)
        with Tree(self._folder) as layers:
            fd = layers.open_folder(UPPER)
            try:
                dress(fd, top, swap_root=self._swaps_root)
            finally:
                os.close(fd)

    @property
    def place(self) -> Path:
        return self._folder

    @property
    def mount(self) -> OverlayMount:
        """See `Workspace.mount`."""
        lower, upper, work = (str(self._folder / name) for name in (LOWER_NAME, UPPER, WORK))
        return OverlayMount((str(self._folder / MASKS), lower), upper, work)

    @property
    def mount_waits(self) -> bool:
        """See `Workspace.mount_waits`: a mask that came after the mount would come too late."""
        return True

    @property
    def _lower(self) -> Path:
        return self._folder / LOWER_NAME

    @property
    def _swaps_root(self) -> bool:
        return not self._lower.is_symlink()

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """See `Workspace.prepare`. What was prepared once is taken as it is; something unfinished begins anew."""
        path = self._state_dir / MANIFEST_NAME
        try:
            mount_disk(self._state_dir, self.place)
            if self._swaps_root and not is_mounted(self._lower):
                attach_idmapped(self.host, self._lower)
            if path.exists():
                self._masked = Manifest.load(path).masked
                return
            with Tree(self.host) as host:
                found = survey(host, Masks(self._record.masks), uid=os.lstat(self.host).st_uid, progress=progress)
            note_owners(found, self.owner, swap_root=self._swaps_root)
            remove_tree(self._folder, MASKS)
            (self._folder / MASKS).mkdir(mode=0o700)
            with Tree(self._folder / MASKS) as layer:
                build(layer, os.lstat(self.host), found, swap_root=self._swaps_root)
            note_refs(self.host, found.manifest, self._state_dir)
            found.manifest.save(path)
        except OSError as error:
            raise WorkspaceError(f"{self.host}: cannot be made ready for the session: {error}") from error
        self._masked = found.manifest.masked
        self._tell(found)

    def _tell(self, found: Survey) -> None:
        for path, rule in self._masked.items():
            self._notes.add(MASKED_BY + rule, path)
        if found.foreign:
            who = f"uid {self.owner.uid}"
            self._notes.say(
                f"{len(found.foreign)} entries belong to somebody else than the folder (first {found.foreign[0]}): "
                f"tools run as {who}, and can do with them what their modes allow {who}"
            )

    def drift(self) -> tuple[Drift, ...]:
        """See `Workspace.drift`. Nothing is read: what has other times counts as changed."""
        with self._host() as host:
            return drifted(Manifest.load(self._state_dir / MANIFEST_NAME), host)

    def changes(self) -> tuple[Change, ...]:
        """See `Workspace.changes`."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        with self._on_disk(), self._host() as host:
            stored = self._stored(host)
            if stored is not None:
                self._review = look(manifest, stored, host, seen_through=True)
                return self._review.changes
            start = Start(manifest, self._mask_stamps())
            with self._merged(host) as merged:
                before = as_started(start, host, merged)
                self._review = look(before, TreeSource(merged, start.untouched_mask), host)
        return self._review.changes

    def changes_at(self, step: int) -> tuple[Change, ...]:
        """See `Workspace.changes_at`."""
        manifest = Manifest.load(self._state_dir / MANIFEST_NAME)
        stored = StoredSource.at(self._state_dir, step, mask_stamps=self._mask_stamps())
        with self._host() as host:
            return look(manifest, stored, host, seen_through=True).changes

    def _mask_stamps(self) -> frozenset[Stamp]:
        with Tree(self._folder / MASKS, grant=True) as layer:
            return frozenset(stamp(found.info) for found in layer.walk(failed=lambda path, error: None))

    def _now_there(self, host: Tree) -> NowThere:
        def now_there(step: Difference) -> Entry | None:
            try:
                with host.at(step.path) as place:
                    return examine(place)
            except OSError:
                return None

        return now_there

    @contextmanager
    def _source(self, host: Tree) -> Iterator[Source]:
        """The last checkpoint; what the layers show where the session ended before that was taken."""
        stored = self._stored(host)
        if stored is not None:
            yield stored
            return
        with self._layers(host) as layers:
            yield layers

    @contextmanager
    def _layers(self, host: Tree) -> Iterator[Source]:
        with self._merged(host) as merged:
            yield TreeSource(merged)

    def _stored(self, host: Tree) -> StoredSource | None:
        spare = LateSource(partial(self._layers, host))
        return StoredSource.of(self._state_dir, spare=spare, mask_stamps=self._mask_stamps())

    def release(self) -> None:
        """See `Workspace.release`: the folder's second mount goes, and that of the session's own disk."""
        give_back_mounts(self._state_dir)

    @contextmanager
    def _merged(self, host: Tree) -> Iterator[Tree]:
        """What the session saw; the container must be closed. Root mounts it by no name, read-only."""
        if os.geteuid() == 0:
            with Tree(self._folder) as layers:
                fds = [layers.open_folder(UPPER), layers.open_folder(MASKS), host.open_folder("")]
                try:
                    with merged_view(fds) as top, Tree.of(top, self._folder) as tree:
                        yield tree
                finally:
                    for fd in fds:
                        os.close(fd)
            return
        if self._view is None:
            raise WorkspaceError(f"{self._folder}: only root can look at an overlay without the engine")
        top = self._view(self.mount, self.owner)
        try:
            with Tree.of(top, self._folder, grant=True) as tree:
                yield tree
        finally:
            os.close(top)


def upper_holds(state_dir: Path) -> bool:
    """Whether the layer of changes has anything in it. Raises OSError: it cannot be listed."""
    folder = state_dir.resolve() / OVERLAY_NAME
    with mounted(state_dir, folder), Tree(folder / UPPER, grant=True) as upper:
        return bool(upper.listing(""))
