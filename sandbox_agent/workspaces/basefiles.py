"""The contents that files had before the first tool ran, taken from the person's folder when they are first needed.

Nothing is copied beforehand. A file of the folder is believed only while it is certain to be what the session started
with: by the hash or the stamp in the manifest, else by its size and times. Masked files are never touched.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.content import digest
from sandbox_agent.workspaces.manifest import RACY_NS, Entry, Manifest, stamp
from sandbox_agent.workspaces.record import MANIFEST_NAME
from sandbox_agent.workspaces.snapshot import Node
from sandbox_agent.workspaces.store import Batch, Store
from sandbox_agent.workspaces.tree import Tree


class BaseFiles:
    """The person's folder as the source of the base's contents."""

    def __init__(self, host: Path, state_dir: Path, taken_ns: int) -> None:
        """`taken_ns` is the time of the base's walk, by the host's clock. The manifest is read when it is needed."""
        self._host = host
        self._path = state_dir / MANIFEST_NAME
        self._taken_ns = taken_ns

    @functools.cached_property
    def _manifest(self) -> Manifest | None:
        return Manifest.load(self._path) if self._path.exists() else None

    def prepare(self) -> None:
        """Read the manifest: for 100,000 files that takes a second. One that is damaged is told when it is used."""
        with contextlib.suppress(WorkspaceError):
            self._manifest  # noqa: B018

    @property
    def strangers(self) -> dict[str, tuple[int, int]]:
        """Paths of the base that do not belong to the tools, with uid and gid as the session sees them."""
        return self._manifest.strangers if self._manifest is not None else {}

    def known_sha256(self, path: str) -> str | None:
        """What the manifest says of a path's content."""
        entry = self._entry(path)
        return entry.sha256 if entry is not None else None

    def keep(self, path: str, node: Node, store: Store | Batch, limit_bytes: int) -> str | None:
        """Put the content that `node` had in the base into the store.

        Args:
            path: its path.
            node: the node of the base, for its size and time.
            store: where to.
            limit_bytes: a file with more data is left where it is, and only its name is found out.

        Returns:
            Its name; None when the folder does not have it any more.
        """
        known = self.known_sha256(path)
        if known is not None and store.has(known):
            return known
        if self._hidden(path):
            return None
        try:
            with Tree(self._host) as tree, tree.at(path) as place:
                fd = place.open_file()
        except OSError:
            return None
        try:
            info = os.fstat(fd)
            if not self._believed(path, node, info):
                return None
            content = digest(fd) if info.st_blocks * 512 > limit_bytes else store.put_file(fd)
        except OSError as error:
            raise WorkspaceError(f"{path}: cannot be kept for undo: {error.strerror}") from error
        finally:
            os.close(fd)
        return content.sha256 if content.size_bytes == node.size_bytes and known in (None, content.sha256) else None

    def _believed(self, path: str, node: Node, info: os.stat_result) -> bool:
        entry = self._entry(path)
        if info.st_size != node.size_bytes:
            return False
        if entry is not None and (entry.sha256 is not None or entry.stamp == stamp(info)):
            return True  # a hash is compared afterwards
        return info.st_mtime_ns == node.mtime_ns and info.st_ctime_ns < self._taken_ns - RACY_NS

    def _entry(self, path: str) -> Entry | None:
        return self._manifest.entries.get(path) if self._manifest is not None else None

    def _hidden(self, path: str) -> bool:
        return self._manifest is not None and self._manifest.hidden_by(path) is not None
