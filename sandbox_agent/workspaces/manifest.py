"""What the person's folder held when the session began: the "before" of every change, kept as JSON lines.

The file lies in the session's state folder, which no container sees, so its content can be believed later.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.folding import folded, has_lookalikes

RACY_NS = 50_000_000
"""A stamp this close to the end of copying proves nothing: time stamps advance in steps of up to 10 ms."""

GIT_ALIASES = frozenset({".git", "git~1"})
"""Folded names that git takes for its folder, on file systems that keep short names, too."""

ROWS_A_LINE = 1000
"""Setting up the encoder for a line takes longer than a line of one entry."""

MASKED_BY = "masked by "
"""Begins the `hidden` of a path that a pattern hides; the pattern follows."""

Stamp = tuple[int, int, int, int]
"""(inode, size, mtime_ns, ctime_ns): while they are the same, so is the content."""


def stamp(info: os.stat_result) -> Stamp:
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def in_git(path: str) -> bool:
    """Whether a path is git's own folder (or its pointer file), at any depth, or lies in one."""
    # Most paths are told at a glance; this is asked for every file of a folder, several times.
    lower = path.lower()
    if ".git" not in lower and "git~1" not in lower and not has_lookalikes(path):
        return False
    return any(part in GIT_ALIASES for part in lower.split("/")) or any(
        part in GIT_ALIASES for part in folded(path).split("/")
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One path. `hidden` is why the session does not see it; then only `kind` is known besides.

    `sha256` is of a file's content or a link's target text, None for folders. `target` is a link's text, or what a
    special file is (see `entries.special`). `stamp` is of the file the session works on. `mode` has permission bits
    only. `owner` is the uid and gid that the session sees, where they are not both the tools' own.
    """

    kind: Kind
    sha256: str | None = None
    mode: int = 0
    size_bytes: int = 0
    target: str | None = None
    stamp: Stamp | None = None
    hidden: str | None = None
    owner: tuple[int, int] | None = None

    @property
    def executable(self) -> bool:
        return self.kind is Kind.FILE and bool(self.mode & 0o100)

    def same_as(self, other: Entry | None) -> bool:
        """Equal in all that is ever brought over: kind, content, target, and a file's executable bit."""
        return (
            other is not None
            and (self.kind, self.sha256, self.target) == (other.kind, other.sha256, other.target)
            and self.executable == other.executable
        )


@dataclass(slots=True)
class Manifest:
    """Entries by path, in the order of the walk. `finished_ns` is when the last one was taken, 0 while it grows."""

    entries: dict[str, Entry] = field(default_factory=dict)
    finished_ns: int = 0

    def unchanged(self, path: str, info: os.stat_result) -> bool:
        """Whether the stamp alone proves that a file is still what it was."""
        known = self.entries.get(path)
        return known is not None and known.stamp == stamp(info) and known.stamp[3] < self.finished_ns - RACY_NS

    def hidden_by(self, path: str) -> str | None:
        """Why the session was not shown this path or a folder above it; None if it was."""
        parts = path.split("/")
        for count in range(len(parts), 0, -1):
            entry = self.entries.get("/".join(parts[:count]))
            if entry is not None and entry.hidden is not None:
                return entry.hidden
        return None

    @property
    def masked(self) -> dict[str, str]:
        """Paths that a pattern hides, with the pattern; not those below one of them."""
        return {p: why for p, why in self.covered.items() if not self._below_covered(p)}

    @property
    def covered(self) -> dict[str, str]:
        """All paths that a pattern hides, those below another one too."""
        return {
            path: entry.hidden.removeprefix(MASKED_BY)
            for path, entry in self.entries.items()
            if entry.hidden is not None and entry.hidden.startswith(MASKED_BY)
        }

    def _below_covered(self, path: str) -> bool:
        return (self.hidden_by(path.rpartition("/")[0]) or "").startswith(MASKED_BY)

    @property
    def strangers(self) -> dict[str, tuple[int, int]]:
        """Paths that do not belong to the tools, with the uid and gid that the session sees."""
        return {path: entry.owner for path, entry in self.entries.items() if entry.owner is not None}

    def finish(self) -> None:
        self.finished_ns = time.time_ns()

    def save(self, path: Path) -> None:
        """Write it whole or not at all; the last line counts the entries."""
        part = path.with_name(path.name + ".part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            rows = [[name, entry_to_json(entry)] for name, entry in self.entries.items()]
            for start in range(0, len(rows), ROWS_A_LINE):
                file.write(json.dumps(rows[start : start + ROWS_A_LINE]) + "\n")
            file.write(json.dumps({"entries": len(self.entries), "finished_ns": self.finished_ns}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read it back.

        Raises:
            WorkspaceError: there is none, or it is not whole: the copy was never finished.
        """
        try:
            lines = path.read_text().splitlines()
            end = json.loads(lines.pop())
            entries = {name: entry_from_json(raw) for line in lines for name, raw in json.loads(line)}
            if len(entries) != end["entries"]:
                raise ValueError(f"{len(entries)} entries, {end['entries']} expected")
            return cls(entries, end["finished_ns"])
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise WorkspaceError(f"{path}: no usable list of the folder's files ({error}); start a new run") from error


def entry_to_json(entry: Entry) -> JsonObject:
    """An entry as plain values; see `entry_from_json`."""
    raw = {
        "kind": entry.kind.value,
        "sha256": entry.sha256,
        "mode": entry.mode,
        "size": entry.size_bytes,
        "target": entry.target,
        "stamp": entry.stamp,
        "hidden": entry.hidden,
        "owner": entry.owner,
    }
    return {key: value for key, value in raw.items() if value is not None}


def entry_from_json(raw: JsonObject) -> Entry:
    """What `entry_to_json` was given. Raises KeyError, ValueError or TypeError for anything else."""
    return Entry(
        Kind(raw["kind"]),
        raw.get("sha256"),
        raw["mode"],
        raw["size"],
        raw.get("target"),
        tuple(raw["stamp"]) if "stamp" in raw else None,
        raw.get("hidden"),
        (raw["owner"][0], raw["owner"][1]) if "owner" in raw else None,
    )
