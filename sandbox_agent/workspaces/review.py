"""Compares a session's copy with the folder as it was at the start, and shows the difference to people.

Everything here is data: bytes are read from the hostile copy without following anything, and nothing is executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Change, Kind
from sandbox_agent.workspaces.danger import danger_of
from sandbox_agent.workspaces.entries import examine, file_kind
from sandbox_agent.workspaces.gitfolder import git_notes
from sandbox_agent.workspaces.manifest import Entry, Manifest, in_git
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.textdiff import MAX_FILE_BYTES, Budget, Side, is_binary, unified
from sandbox_agent.workspaces.tree import Found, Tree


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
    """What was shown, and what `apply` goes by. `after` is the whole copy without git's folders."""

    before: Manifest
    after: dict[str, Entry]
    differences: dict[str, Difference]
    changes: tuple[Change, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Scan:
    """The copy now. `git` holds what lies in git's folders; `unknown` the paths that could not be looked at."""

    entries: dict[str, Entry] = field(default_factory=dict)
    git: dict[str, Found] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def covers(self, path: str) -> bool:
        """Whether absence of a path means that it is gone."""
        parts = path.split("/")
        return not any("/".join(parts[:count]) in self.unknown for count in range(1, len(parts) + 1))


def review(
    manifest: Manifest,
    copy: Tree,
    host: Tree,
    *,
    skip: Callable[[str], bool] = lambda _: False,
    in_place: bool = False,
) -> Review:
    """Everything that differs, by path.

    Args:
        manifest: the folder at the start.
        copy: what the tools worked on.
        host: the person's folder, for the text that was there before.
        skip: paths to leave out of the comparison.
        in_place: `copy` is the person's folder itself.

    Raises:
        WorkspaceError: the copy cannot be walked.
    """
    notes = Notes()
    scan = scan_tree(copy, manifest, notes, skip)
    differences = {difference.path: difference for difference in compare(manifest, scan)}
    for line in git_notes(manifest, scan.git, copy, in_place=in_place):
        notes.say(line)
    budget = Budget()
    changes = tuple(
        describe(difference, scan.entries, _Texts(copy, host), budget) for difference in differences.values()
    )
    return Review(manifest, scan.entries, differences, changes, notes.lines)


def scan_tree(tree: Tree, manifest: Manifest, notes: Notes, skip: Callable[[str], bool] = lambda _: False) -> Scan:
    """Walk a tree, hashing what its stamp does not prove to be unchanged."""
    scan = Scan()

    def failed(path: str, error: OSError) -> None:
        if not path:
            raise WorkspaceError(f"{tree.root}: cannot be listed: {error.strerror}") from error
        scan.unknown.add(path)
        notes.add(f"cannot be looked at, and is not copied back ({error.strerror})", path)

    for found in tree.walk(failed=failed, enter=lambda found: not skip(found.path)):
        if skip(found.path):
            continue
        if in_git(found.path):
            scan.git[found.path] = found
            continue
        try:
            entry = _entry(tree, manifest, found)
        except OSError as error:
            failed(found.path, error)
            continue
        if entry is not None:
            scan.entries[found.path] = entry
    return scan


def _entry(tree: Tree, manifest: Manifest, found: Found) -> Entry | None:
    kind = file_kind(found.info.st_mode)
    if kind is Kind.FILE and manifest.unchanged(found.path, found.info):
        known = manifest.entries[found.path]
        return Entry(kind, known.sha256, found.info.st_mode & 0o777, known.size_bytes, stamp=known.stamp)
    if kind is Kind.DIRECTORY:
        return Entry(kind, mode=found.info.st_mode & 0o777)
    with tree.at(found.path) as place:
        return examine(place)


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
    if before.kind is not Kind.FILE:
        return None
    if before.sha256 != after.sha256:
        return "modified"
    return "mode" if before.executable != after.executable else None


def _folders_with_content(entries: dict[str, Entry]) -> set[str]:
    return {path.rpartition("/")[0] for path in entries}


class _Texts:
    """Where the two sides of a diff are read from."""

    def __init__(self, copy: Tree, host: Tree) -> None:
        self._copy = copy
        self._host = host

    def before(self, path: str, entry: Entry) -> Side | None:
        return self._read(self._host, path, entry)

    def after(self, path: str, entry: Entry) -> Side | None:
        return self._read(self._copy, path, entry)

    def _read(self, tree: Tree, path: str, entry: Entry) -> Side | None:
        """The content that `entry` stands for; None when something else is there by now."""
        mode = "100755" if entry.executable else "100644"
        if entry.kind is Kind.LINK:
            return Side((entry.target or "").encode("utf-8", "surrogateescape"), "120000")
        try:
            with tree.at(path) as place:
                data = place.read_bytes(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        return Side(data, mode) if _sha256(data) == entry.sha256 else None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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


def _diff(difference: Difference, texts: _Texts, budget: Budget) -> tuple[str | None, str | None, bool]:
    """(diff, why there is none, whether a side is binary)."""
    sides = [e for e in (difference.before, difference.after) if e is not None and e.kind is not Kind.DIRECTORY]
    if difference.kind in ("other", "type") or not sides:
        was = difference.before.kind.value if difference.before else "nothing"
        return None, f"was {was}" if difference.kind in ("other", "type") else "an empty folder", False
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
