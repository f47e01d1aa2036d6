"""A folder held open by its descriptor: listing, walking, and the way to every `Place` below it.

It adds nothing to what `nofollow` promises: paths are resolved below the descriptor, and never through a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.nofollow import (
    FOLDER_FLAGS,
    OpenPlace,
    decode,
    encode,
    grant_owner,
    open_folder,
    open_folder_at,
)

MAX_ENTRIES = 1_000_000
"""A tree with more is not walked to its end: its names alone would need about a gigabyte."""


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a walk: its path below the root, and its own status (links not followed)."""

    path: str
    info: os.stat_result


class Tree:
    """A folder held open by descriptor. With `grant`, entries of our own copy are made readable where needed."""

    def __init__(self, root: Path, *, grant: bool = False) -> None:
        """Raises OSError: missing, not a folder, not readable, or a part of `root` is a link."""
        self.root = root
        self._grant = grant
        if not root.is_absolute():
            raise OSError(errno.EINVAL, "not an absolute path", str(root))
        top = os.open("/", FOLDER_FLAGS)
        try:
            path = os.fsencode(root).strip(b"/")
            self._fd = self._open_below(top, path) if path else os.dup(top)
        finally:
            os.close(top)

    @classmethod
    def of(cls, fd: int, root: Path, *, grant: bool = False) -> Tree:
        """A folder that is open already, for example the top of a mount without a name; `root` is for messages.

        The descriptor stays the caller's. Raises OSError: not a folder, or not readable.
        """
        tree = cls.__new__(cls)
        tree.root = root
        tree._grant = grant
        tree._fd = os.open(".", FOLDER_FLAGS, dir_fd=fd)
        return tree

    def __enter__(self) -> Tree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def _open_below(self, folder_fd: int, path: bytes) -> int:
        try:
            return open_folder(folder_fd, path)
        except PermissionError:
            if not self._grant:
                raise
        parent, _, name = path.rpartition(b"/")
        parent_fd = open_folder(folder_fd, parent) if parent else os.dup(folder_fd)
        try:
            grant_owner(parent_fd, name)
            return open_folder_at(parent_fd, name)
        finally:
            os.close(parent_fd)

    def open_folder(self, path: str) -> int:
        """A descriptor of a folder, "" for the root; the caller closes it."""
        return self._open_below(self._fd, encode(path)) if path else os.dup(self._fd)

    def at(self, path: str) -> OpenPlace:
        """The place a path names, as a context: `with tree.at("a/b") as place`. Raises OSError for its folder."""
        folder, _, name = path.rpartition("/")
        return OpenPlace(self.open_folder(folder), encode(name), grant=self._grant)

    def listing(self, folder: str) -> list[Found]:
        """What a folder holds, by name; entries that vanish meanwhile are left out."""
        fd = self.open_folder(folder)
        prefix = folder + "/" if folder else ""
        found = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    found.append(Found(prefix + decode(os.fsencode(entry.name)), info))
        finally:
            os.close(fd)
        return sorted(found, key=lambda entry: entry.path)

    def walk(
        self,
        *,
        failed: Callable[[str, OSError], None],
        enter: Callable[[Found], bool] = lambda _: True,
        max_entries: int = MAX_ENTRIES,
    ) -> Iterator[Found]:
        """Everything below, folders before what they hold; never through a link.

        Args:
            failed: told of folders that could not be listed, "" is the root.
            enter: whether to go into a folder that was just given out.
            max_entries: more of them end the walk.

        Raises:
            WorkspaceError: there are more than `max_entries`.
        """
        pending, count = [""], 0
        while pending:
            folder = pending.pop()
            try:
                entries = self.listing(folder)
            except OSError as error:
                failed(folder, error)
                continue
            count += len(entries)
            if count > max_entries:
                raise WorkspaceError(f"{self.root}: more than {max_entries:,} files and folders; use a smaller folder")
            for entry in entries:
                yield entry
                if stat.S_ISDIR(entry.info.st_mode) and enter(entry):
                    pending.append(entry.path)
