"""Compares a session's copy with the folder as it was at the start, and shows the difference to people.

Everything here is data: bytes are read from the hostile copy without following anything, and nothing is executed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_agent.workspaces.base import Change, Kind
from sandbox_agent.workspaces.danger import danger_of
from sandbox_agent.workspaces.entries import special_name
from sandbox_agent.workspaces.gitfolder import git_notes
from sandbox_agent.workspaces.manifest import Entry, Manifest, in_git
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.source import ContentError, Scan, Source
from sandbox_agent.workspaces.textdiff import MAX_FILE_BYTES, Budget, Side, is_binary, unified
from sandbox_agent.workspaces.tree import Tree

BaseContent = Callable[[str, int], bytes | None]
"""Hash and limit in bytes to content, None if it is not known."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One path before and after; None is "not there"."""

    path: str
    kind: str
    before: Entry | None
    after: Entry | None

    @property
    def after_kind(self) -> Kind | None:
        return self.after.kind if self.after is not None else None


@dataclass(frozen=True, slots=True)
class Review:
    """What was shown, and what `apply` goes by.

    `after` is all that the session has without git's folders; `commits` are those of them with new commits or branches.
    """

    before: Manifest
    after: dict[str, Entry]
    differences: dict[str, Difference]
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    commits: tuple[str, ...] = ()


def review(
    manifest: Manifest,
    source: Source,
    host: Tree,
    *,
    in_place: bool = False,
    base_content: BaseContent = lambda sha256, limit_bytes: None,
) -> Review:
    """Everything that differs, by path.

    Args:
        manifest: the folder at the start.
        source: what the session made of it.
        host: the person's folder, for the text that was there before.
        in_place: the session worked on the person's folder itself.
        base_content: asked first for what a file held before, by its hash.

    Raises:
        WorkspaceError: the source cannot be read.
    """
    notes = Notes()
    scan = source.scan(manifest, notes)
    differences = {difference.path: difference for difference in compare(manifest, scan)}
    git = git_notes(manifest, scan, in_place=in_place)
    for line in git.lines:
        notes.say(line)
    budget, texts = Budget(), _Texts(source, host, base_content)
    changes = tuple(describe(difference, scan.entries, texts, budget) for difference in differences.values())
    return Review(manifest, scan.entries, differences, changes, notes.lines, git.commits)


def compare(manifest: Manifest, scan: Scan) -> list[Difference]:
    """Sorted by path. Folders only when empty or in the way of another kind; git's folders and hidden paths never."""
    visible = {p: e for p, e in manifest.entries.items() if e.hidden is None and not in_git(p)}
    held_before, held_after = _folders_with_content(visible), _folders_with_content(scan.entries)
    found = []
    for path in sorted(visible.keys() | scan.entries.keys()):
        before, after = visible.get(path), scan.entries.get(path)
        if before is None and after is not None:
            known = manifest.entries.get(path)
            if after.kind is Kind.DIRECTORY and (path in held_after or known is not None):
                continue
            found.append(Difference(path, "other" if after.kind is Kind.OTHER else "added", None, after))
        elif before is not None and after is None:
            if not scan.covers(path) or (before.kind is Kind.DIRECTORY and path in held_before):
                continue
            found.append(Difference(path, "deleted", before, None))
        elif before is not None and after is not None:
            kind = _kind(before, after)
            if kind is not None:
                found.append(Difference(path, kind, before, after))
    return found


def _kind(before: Entry, after: Entry) -> str | None:
    if before.kind is not after.kind:
        return "other" if after.kind is Kind.OTHER else "type"
    if before.kind is Kind.LINK:
        return "link" if before.target != after.target else None
    if before.kind is Kind.OTHER:
        return "other" if before.target != after.target else None
    if before.kind is not Kind.FILE:
        return None
    if before.sha256 != after.sha256:
        return "modified"
    return "mode" if before.executable != after.executable else None


def _folders_with_content(entries: dict[str, Entry]) -> set[str]:
    return {path.rpartition("/")[0] for path in entries}


class _Texts:
    """Where the two sides of a diff are read from."""

    def __init__(self, source: Source, host: Tree, base_content: BaseContent) -> None:
        self._source = source
        self._host = host
        self._base_content = base_content

    def before(self, path: str, entry: Entry) -> Side | None:
        """The content at the start; None when something else is there by now, and nobody kept it."""
        if entry.kind is Kind.LINK:
            return _link(entry)
        data = self._base_content(entry.sha256, MAX_FILE_BYTES + 1) if entry.sha256 is not None else None
        try:
            if data is None:
                with self._host.at(path) as place:
                    data = place.read_bytes(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        return _side(data, entry)

    def after(self, path: str, entry: Entry) -> Side | None:
        """The content now; None when it was changed after it was hashed, or not kept."""
        if entry.kind is Kind.LINK:
            return _link(entry)
        try:
            with self._source.open(path, entry) as fd, os.fdopen(os.dup(fd), "rb") as file:
                return _side(file.read(MAX_FILE_BYTES + 1), entry)
        except (ContentError, OSError):
            return None


def _link(entry: Entry) -> Side:
    return Side((entry.target or "").encode("utf-8", "surrogateescape"), "120000")


def _side(data: bytes, entry: Entry) -> Side | None:
    mode = "100755" if entry.executable else "100644"
    return Side(data, mode) if hashlib.sha256(data).hexdigest() == entry.sha256 else None


def describe(difference: Difference, after: dict[str, Entry], texts: _Texts, budget: Budget) -> Change:
    """The change as it is shown and recorded."""
    before, now = difference.before, difference.after
    shown = now or before
    assert shown is not None
    diff, note, binary = _diff(difference, texts, budget)
    return Change(
        path=difference.path,
        kind=difference.kind,
        entry=shown.kind,
        before_sha256=before.sha256 if before else None,
        after_sha256=now.sha256 if now else None,
        binary=binary,
        size_before=before.size_bytes if before else None,
        size_after=now.size_bytes if now else None,
        mode_before=before.mode if before else None,
        mode_after=now.mode if now else None,
        danger=danger_of(difference.path, before, now, bare_repository=_in_bare_repository(difference.path, after)),
        diff=diff,
        note=note,
    )


def _in_bare_repository(path: str, after: dict[str, Entry]) -> bool:
    """git takes any folder above a path that holds HEAD, objects and refs for a repository, and obeys its config."""
    folder = path
    while folder:
        folder = folder.rpartition("/")[0]
        prefix = folder + "/" if folder else ""
        if all(prefix + name in after for name in ("HEAD", "objects", "refs")):
            return True
    return False


def _what(entry: Entry | None) -> str:
    if entry is None:
        return "nothing"
    return special_name(entry.target) if entry.kind is Kind.OTHER else f"a {entry.kind.value}"


def _diff(difference: Difference, texts: _Texts, budget: Budget) -> tuple[str | None, str | None, bool]:
    """(diff, why there is none, whether a side is binary)."""
    if difference.after is not None and difference.after.kind is Kind.OTHER:
        was = f", was {_what(difference.before)}" if difference.before else ""
        return None, special_name(difference.after.target) + was, False
    sides = [e for e in (difference.before, difference.after) if e is not None and e.kind is not Kind.DIRECTORY]
    if difference.kind == "type":
        return None, f"was {_what(difference.before)}", False
    if any(entry.kind is Kind.OTHER for entry in sides):
        return None, _what(difference.before), False
    if not sides:
        return None, "an empty folder", False
    if any(entry.size_bytes > MAX_FILE_BYTES for entry in sides):
        return None, f"larger than {MAX_FILE_BYTES // 1024} KiB: only sizes are shown", False
    if budget.chars <= 0:
        return None, "not shown: the diffs before it fill the review", False
    before = after = None
    if difference.before is not None:
        before = texts.before(difference.path, difference.before)
        if before is None:
            return None, "no diff: the original is gone, changed meanwhile or in place", False
    if difference.after is not None:
        after = texts.after(difference.path, difference.after)
        if after is None:
            return None, "no diff: the copy was changed while it was looked at", False
    if any(side is not None and is_binary(side.data) for side in (before, after)):
        return None, "binary", True
    return unified(difference.path, before, after, budget), None, False
