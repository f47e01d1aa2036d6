"""The last checkpoint of a session as the source of a review: the same for every mode, and no tree of the session's is
opened on this machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.drift import original
from sandbox_agent.workspaces.entries import examine, link_digest
from sandbox_agent.workspaces.manifest import Entry, Manifest, Stamp, in_git, stamp
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.record import LAST_STEP_NAME
from sandbox_agent.workspaces.snapshot import ROOT, Node
from sandbox_agent.workspaces.source import ContentError, Scan, Source
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Loaded, Steps
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.tree import Tree
from sandbox_agent.workspaces.walked import EMPTY_SHA256

NOT_KEPT = "not kept"
"""Stands for the digest of a content that nobody knows: equal to no digest."""


class StoredSource:
    """The last checkpoint of a session. Nothing that tools wrote is opened but the contents in the store."""

    def __init__(
        self,
        last: Loaded,
        store: Store,
        *,
        spare: Source | None = None,
        mask_stamps: Container[Stamp] = frozenset[Stamp](),
    ) -> None:
        """Nothing is read yet.

        Args:
            last: the step.
            store: where its contents are.
            spare: has the contents that were too large to keep, if anything has.
            mask_stamps: of the empty files that hide secrets: moved with their folder, they are no file of the
                session's.
        """
        self._nodes = last.snapshot.nodes
        self._bases = last.bases
        self._store = store
        self._spare = spare
        self._mask_stamps = mask_stamps

    @classmethod
    def of(
        cls, state_dir: Path, *, spare: Source | None = None, mask_stamps: Container[Stamp] = frozenset[Stamp]()
    ) -> StoredSource | None:
        """The one of a session whose work has ended; None if its last checkpoint was never taken.

        Raises:
            WorkspaceError: a checkpoint is damaged.
        """
        path = state_dir / LAST_STEP_NAME
        if not path.exists():
            return None
        try:
            number = int(json.loads(path.read_text())["step"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"{path}: cannot be used ({error}); remove this file") from error
        return cls.at(state_dir, number, spare=spare, mask_stamps=mask_stamps)

    @classmethod
    def at(
        cls,
        state_dir: Path,
        step: int,
        *,
        spare: Source | None = None,
        mask_stamps: Container[Stamp] = frozenset[Stamp](),
    ) -> StoredSource:
        """The one of any checkpoint.

        Raises:
            WorkspaceError: there is no such checkpoint, or it is damaged.
        """
        steps = Steps(state_dir / CHECKPOINTS_NAME)
        return cls(steps.load(step), steps.store, spare=spare, mask_stamps=mask_stamps)

    def scan(self, manifest: Manifest, notes: Notes) -> Scan:
        """See `Source.scan`."""
        scan = Scan()
        for path, node in self._nodes.items():
            known = manifest.entries.get(path)
            if path == ROOT or (known is not None and known.hidden is not None and node.size_bytes == 0):
                continue
            if in_git(path):
                scan.git.add(path)
            elif known is not None or not self._is_mask(node):
                scan.entries[path] = self._entry(path, node, known)
        scan.git_differs = lambda path: self._git_differs(path, manifest.entries.get(path))
        return scan

    def _git_differs(self, path: str, known: Entry | None) -> bool:
        """The same as `_differs`, and what was changed and taken back is what it was, also where nothing was hashed."""
        if known is not None and known.kind is Kind.FILE and known.sha256 is None:
            known = replace(known, sha256=self._bases.get(path))
        return self._differs(path, known)

    def _is_mask(self, node: Node) -> bool:
        return (node.inode, node.size_bytes, node.mtime_ns, node.ctime_ns) in self._mask_stamps

    def _entry(self, path: str, node: Node, known: Entry | None) -> Entry:
        if node.kind is Kind.LINK:
            target = node.target or ""
            return Entry(node.kind, link_digest(target), size_bytes=len(target), target=target)
        if node.kind is not Kind.FILE:
            return Entry(node.kind, mode=node.mode & 0o777, target=node.target)
        sha256 = node.sha256 or self._bases.get(path)
        if not sha256 and known is not None:
            # Never changed, so it is what the manifest says, unless that has moved on with an apply.
            sha256 = known.sha256 if known.size_bytes == node.size_bytes else NOT_KEPT
        return Entry(node.kind, sha256, node.mode & 0o777, node.size_bytes)

    def _differs(self, path: str, known: Entry | None) -> bool:
        """Whether a path is another than the manifest says, as far as can be told without reading it."""
        node = self._nodes.get(path)
        if node is None or known is None or node.kind is not known.kind:
            return not (node is None and known is None)
        if node.kind in (Kind.LINK, Kind.OTHER):
            return node.target != known.target
        if node.kind is not Kind.FILE:
            return False
        sha256 = node.sha256 or self._bases.get(path)
        if not sha256:
            return node.size_bytes != known.size_bytes
        return sha256 != known.sha256

    def before(self, manifest: Manifest, host: Tree, *, seen_through: bool) -> Manifest:
        """The manifest with digests for all that changed.

        Args:
            manifest: the folder at the start, or as a later apply left it.
            host: the person's folder, to be asked where nothing else knows what a file held.
            seen_through: whether the session saw the folder itself, with what the person changed meanwhile: such
                changes are taken over, for they are none of the session's.
        """
        entries = dict(manifest.entries)
        for path in sorted(self._nodes.keys() | entries.keys()):
            known, node = entries.get(path), self._nodes.get(path)
            if path == ROOT or in_git(path) or (known is not None and known.hidden is not None):
                continue
            if not self._differs(path, known):
                continue
            if seen_through and self._is_theirs(path, node, known, host):
                if node is None:
                    del entries[path]
                else:
                    entries[path] = self._entry(path, node, known)
            elif known is not None and known.kind is Kind.FILE and known.sha256 is None:
                sha256 = self._bases.get(path)
                entries[path] = replace(known, sha256=sha256) if sha256 else original(host, path, known)
        return Manifest(entries, manifest.finished_ns)

    def _is_theirs(self, path: str, node: Node | None, known: Entry | None, host: Tree) -> bool:
        """Whether the folder itself has become what the session saw there."""
        try:
            with host.at(path) as place:
                info = place.stat()
                if info is None:
                    return node is None and known is not None
                if node is None or (known is not None and known.kind is Kind.FILE and known.stamp == stamp(info)):
                    return False
                return self._entry(path, node, None).same_as(examine(place))
        except OSError:
            return node is None and known is not None

    def base_content(self, sha256: str, limit_bytes: int) -> bytes | None:
        """What a file held at the start, if it was kept."""
        try:
            return self._store.read(sha256, limit_bytes) if self._store.has(sha256) else None
        except WorkspaceError:
            return None

    @contextmanager
    def open(self, path: str, entry: Entry) -> Iterator[int]:
        """See `Source.open`."""
        if entry.sha256 in (None, NOT_KEPT):
            raise ContentError("its content was not kept")
        if entry.sha256 == EMPTY_SHA256:  # which nobody stores
            with os.fdopen(os.memfd_create("empty"), "rb") as file:
                yield file.fileno()
            return
        if not self._store.has(entry.sha256) and self._spare is not None:
            with self._spare.open(path, entry) as fd:
                yield fd
            return
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(self._store.open(entry.sha256))
            except WorkspaceError as error:
                raise ContentError(str(error)) from error
            yield fd


def end_at(state_dir: Path, step: int) -> None:
    """Note that a session's work ended with this checkpoint: reviews go by it from now on."""
    part = state_dir / f"{LAST_STEP_NAME}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(json.dumps({"step": step}))
        file.flush()
        os.fsync(file.fileno())
    part.replace(state_dir / LAST_STEP_NAME)


def go_on(state_dir: Path) -> None:
    """The session works again: what its last checkpoint was is not what it has done."""
    (state_dir / LAST_STEP_NAME).unlink(missing_ok=True)
