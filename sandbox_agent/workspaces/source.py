"""Where the "after" of a review comes from: here a tree on this machine; see `stored` for checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import examine, file_kind
from sandbox_agent.workspaces.manifest import Entry, Manifest, in_git, stamp
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.tree import Found, Tree

CHANGED_IN_COPY = "was changed inside after it was shown"


class ContentError(Exception):
    """The content that was shown is not to be had any more; the text says why."""


@dataclass(slots=True)
class Scan:
    """What a session made of its folder.

    `git` are the paths in git's folders, `git_differs` tells whether one of them changed; `unknown` the paths that
    could not be looked at.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    git: set[str] = field(default_factory=set)
    git_differs: Callable[[str], bool] = lambda path: False
    unknown: set[str] = field(default_factory=set)

    def covers(self, path: str) -> bool:
        """Whether absence of a path means that it is gone."""
        parts = path.split("/")
        return not any("/".join(parts[:count]) in self.unknown for count in range(1, len(parts) + 1))


class Source(Protocol):
    """What a session made of its folder, with the contents."""

    def scan(self, manifest: Manifest, notes: Notes) -> Scan:
        """Everything there is now.

        Raises:
            WorkspaceError: it cannot be read.
        """
        ...

    def open(self, path: str, entry: Entry) -> AbstractContextManager[int]:
        """A descriptor of a file's content, at its start. Whether it is what `entry` says the caller must check.

        Raises:
            ContentError: there is no such content.
        """
        ...


class TreeSource:
    """A tree that the host can read, hostile as it is: a copy, an overlay's merged view, the person's own folder."""

    def __init__(self, tree: Tree, skip: Callable[[str], bool] = lambda path: False) -> None:
        """`skip` are paths to leave out."""
        self._tree = tree
        self._skip = skip

    def scan(self, manifest: Manifest, notes: Notes) -> Scan:
        """See `Source.scan`: what its stamp does not prove to be unchanged is hashed."""
        scan, git = Scan(), dict[str, Found]()

        def failed(path: str, error: OSError) -> None:
            if not path:
                raise WorkspaceError(f"{self._tree.root}: cannot be listed: {error.strerror}") from error
            scan.unknown.add(path)
            notes.add(f"cannot be looked at, and is not copied back ({error.strerror})", path)

        for found in self._tree.walk(failed=failed, enter=lambda found: not self._skip(found.path)):
            if self._skip(found.path):
                continue
            if in_git(found.path):
                git[found.path] = found
                continue
            try:
                entry = self._entry(manifest, found)
            except OSError as error:
                failed(found.path, error)
                continue
            if entry is not None:
                scan.entries[found.path] = entry
        scan.git = set(git)
        scan.git_differs = lambda path: self._git_differs(manifest.entries.get(path), git.get(path))
        return scan

    def _entry(self, manifest: Manifest, found: Found) -> Entry | None:
        kind = file_kind(found.info.st_mode)
        if kind is Kind.FILE and manifest.unchanged(found.path, found.info):
            known = manifest.entries[found.path]
            return Entry(kind, known.sha256, found.info.st_mode & 0o777, known.size_bytes, stamp=known.stamp)
        if kind is Kind.DIRECTORY:
            return Entry(kind, mode=found.info.st_mode & 0o777)
        with self._tree.at(found.path) as place:
            return examine(place)

    def _git_differs(self, known: Entry | None, found: Found | None) -> bool:
        if known is None or found is None:
            return True
        if known.kind is Kind.DIRECTORY or known.stamp == stamp(found.info):
            return False
        try:
            with self._tree.at(found.path) as place:
                return not known.same_as(examine(place))
        except OSError:
            return True

    @contextmanager
    def open(self, path: str, entry: Entry) -> Iterator[int]:
        """See `Source.open`."""
        try:
            with self._tree.at(path) as place:
                fd = place.open_file()
        except OSError as error:
            raise ContentError(CHANGED_IN_COPY) from error
        try:
            yield fd
        finally:
            os.close(fd)


class LateSource:
    """A source of contents that is opened only for what no other has: looking may cost a mount."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Source]]) -> None:
        self._opened = opened

    def scan(self, manifest: Manifest, notes: Notes) -> Scan:
        """See `Source.scan`."""
        with self._opened() as source:
            return source.scan(manifest, notes)

    @contextmanager
    def open(self, path: str, entry: Entry) -> Iterator[int]:
        """See `Source.open`."""
        with ExitStack() as stack:
            try:
                source = stack.enter_context(self._opened())
            except (OSError, WorkspaceError) as error:
                raise ContentError(f"its content was not kept, and the layers cannot be seen: {error}") from error
            yield stack.enter_context(source.open(path, entry))
