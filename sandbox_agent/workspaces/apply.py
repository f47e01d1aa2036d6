"""Brings chosen changes from a session's copy to the person's folder, and overwrites nothing that changed meanwhile.

Per file it is all or nothing: new content is written beside its destination, checked against what was shown, and
renamed. Stopped in the middle, it can simply be run again: what is already there is recognised by its hash.
A host file with several hard links is never replaced (the other names would keep the old content), nor one that
belongs to somebody else whom we cannot give the new one. Extended attributes of a replaced file are not carried over.
"""

from __future__ import annotations

import errno
from collections.abc import Collection

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ApplyOutcome, Kind
from sandbox_agent.workspaces.entries import examine, file_kind, special_name
from sandbox_agent.workspaces.manifest import Entry
from sandbox_agent.workspaces.nofollow import Place
from sandbox_agent.workspaces.put import Conflict, Putter, explain
from sandbox_agent.workspaces.review import Difference, Review
from sandbox_agent.workspaces.tree import Tree


class Applier:
    """One `apply`: chooses, orders, and does one path after the other."""

    def __init__(self, review: Review, copy: Tree, host: Tree, temporary_prefix: str) -> None:
        self._review = review
        self._host = host
        self._putter = Putter(copy, host, temporary_prefix)
        self._prefix = temporary_prefix
        self._conflicts: dict[str, str] = {}
        self._applied: set[str] = set()
        self.dropped: set[str] = set()
        """Folders that went because nothing was left in them; they are no changes of their own."""

    def apply(self, paths: Collection[str] | None) -> ApplyOutcome:
        """See `Workspace.apply`."""
        chosen, withheld = self._choose(paths)
        self._sweep(chosen)
        for difference in self._ordered(chosen):
            try:
                self._one(difference)
            except (Conflict, OSError) as error:
                self._conflicts[difference.path] = explain(error)
            else:
                self._applied.add(difference.path)
        rest = tuple(path for path in self._review.differences if path not in self._applied)
        return ApplyOutcome(tuple(sorted(self._applied)), rest, self._conflicts, withheld)

    def _choose(self, paths: Collection[str] | None) -> tuple[list[Difference], dict[str, str]]:
        """The differences to apply, and those that a wider choice covers but only their own name brings over."""
        differences = self._review.differences
        named = None if paths is None else {path.rstrip("/") for path in paths}
        if named is not None:
            folders = {path[:index] for path in differences for index, char in enumerate(path) if char == "/"}
            unknown = sorted(named - differences.keys() - folders)
            if unknown:
                raise WorkspaceError(f"not among the changes: {', '.join(unknown)}")
        chosen, withheld = [], {}
        for path, difference in differences.items():
            if named is not None and path not in named and not any(path.startswith(name + "/") for name in named):
                continue
            if difference.after is not None and difference.after.kind is Kind.OTHER:
                withheld[path] = "a FIFO or socket is never copied out"
            elif difference.after is not None and difference.after.kind is Kind.LINK and path not in (named or ()):
                withheld[path] = f"a link to {difference.after.target}: goes only when its own path is named"
            else:
                chosen.append(difference)
        return chosen, withheld

    def _ordered(self, chosen: list[Difference]) -> list[Difference]:
        """Parents before what they hold, deletions last and deepest first, what makes room for a file before all."""
        replaced = {d.path for d in chosen if d.before and d.before.kind is Kind.DIRECTORY and d.after is not None}
        gone = [d for d in reversed(chosen) if d.after is None]
        early = [d for d in gone if any(d.path.startswith(path + "/") for path in replaced)]
        late = [d for d in gone if d not in early] if early else gone
        return early + [d for d in chosen if d.after is not None] + late

    def _sweep(self, chosen: list[Difference]) -> None:
        """Remove what an interrupted run of ours left beside the files it was writing."""
        for folder in {difference.path.rpartition("/")[0] for difference in chosen}:
            try:
                left = [
                    f.path for f in self._host.listing(folder) if f.path.rpartition("/")[2].startswith(self._prefix)
                ]
            except OSError:
                continue  # the folder is new, or in conflict: the put will say so
            for path in left:
                with self._host.at(path) as place:
                    place.unlink()

    def _one(self, difference: Difference) -> None:
        hidden = self._review.before.hidden_by(difference.path)
        if hidden is not None:
            raise Conflict(f"the session was not shown what is there ({hidden})")
        if difference.after is None:
            self._delete(difference)
            return
        self._make_parents(difference.path)
        with self._host.at(difference.path) as place:
            current = examine(place)
            if difference.after.same_as(current):
                return
            _check(difference, current, place)
            if current is not None and current.kind is Kind.DIRECTORY:
                self._clear(difference.path, place)
                current = None
            self._putter.put(difference, current, place)

    def _make_parents(self, path: str) -> None:
        parts = path.split("/")
        for count in range(1, len(parts)):
            folder = "/".join(parts[:count])
            with self._host.at(folder) as place:
                info = place.stat()
                if info is None:
                    if folder in self._review.before.entries and folder not in self._applied:
                        raise Conflict(f"its folder {folder} was removed here meanwhile")
                    self._putter.make_folder(place)
                elif file_kind(info.st_mode) is not Kind.DIRECTORY:
                    raise Conflict(f"its folder {folder} is {_what(examine(place), place)} here")

    def _delete(self, difference: Difference) -> None:
        before = difference.before
        assert before is not None
        try:
            with self._host.at(difference.path) as place:
                current = examine(place)
                if current is not None:
                    _check(difference, current, place)
                    if before.kind is Kind.DIRECTORY:
                        place.rmdir()
                    else:
                        place.unlink()
        except FileNotFoundError:
            pass  # it, or the folder it was in, is gone already
        self._drop_folders(difference.path)

    def _drop_folders(self, path: str) -> None:
        """Folders that the copy no longer has go with the last thing they held."""
        folder = path.rpartition("/")[0]
        while folder and self._was_dropped(folder):
            try:
                with self._host.at(folder) as place:
                    place.rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return
                raise
            self.dropped.add(folder)
            folder = folder.rpartition("/")[0]

    def _was_dropped(self, folder: str) -> bool:
        before, after = self._review.before.entries.get(folder), self._review.after.get(folder)
        return before is not None and before.kind is Kind.DIRECTORY and after is None

    def _clear(self, path: str, place: Place) -> None:
        """Remove a folder that a file takes the place of; all it may still hold is folders that went with it."""
        below = [
            name
            for name, entry in self._review.before.entries.items()
            if name.startswith(path + "/") and entry.kind is Kind.DIRECTORY
        ]
        for name in sorted(below, reverse=True):
            try:
                with self._host.at(name) as inner:
                    inner.rmdir()
            except FileNotFoundError:
                pass
            self.dropped.add(name)
        place.rmdir()


def _check(difference: Difference, current: Entry | None, place: Place) -> None:
    """Raise `Conflict` unless the host still has what the session started from."""
    before = difference.before
    if current is None:
        if before is None or before.kind is not difference.after_kind:
            return  # a type change takes two steps: stopped between them, nothing is there
        raise Conflict("was removed here meanwhile")
    if before is None:
        raise Conflict(f"appeared here meanwhile, as {_what(current, place)}")
    if current.kind is not before.kind:
        raise Conflict(f"became {_what(current, place)} here meanwhile")
    if (current.sha256, current.target) != (before.sha256, before.target):
        raise Conflict("was changed here meanwhile")


def _what(entry: Entry | None, place: Place) -> str:
    if entry is None:
        return "missing"
    if entry.kind is Kind.OTHER:
        info = place.stat()
        return special_name(info.st_mode) if info is not None else "missing"
    return {Kind.FILE: "a file", Kind.DIRECTORY: "a folder", Kind.LINK: "a link"}[entry.kind]
