"""Does a planned apply, one path after the other, and overwrites nothing that changed meanwhile.

Per file it is all or nothing: new content is written beside its destination, checked against what was shown, and
renamed. Stopped in the middle, it is simply done again: what is already there is recognised by its hash.
A host file with several hard links is never replaced (the other names would keep the old content), nor one that
belongs to somebody else whom we cannot give the new one. Extended attributes (user.*) and access lists stay.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass, field

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import examine, file_kind, special_name
from sandbox_agent.workspaces.ledger import Plan
from sandbox_agent.workspaces.manifest import Entry, Manifest
from sandbox_agent.workspaces.nofollow import Place
from sandbox_agent.workspaces.put import Conflict, Putter, explain
from sandbox_agent.workspaces.putspecial import devices_of
from sandbox_agent.workspaces.review import Difference
from sandbox_agent.workspaces.source import Source
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.tree import Tree


@dataclass(slots=True)
class Done:
    """What a plan came to: the steps that are in the folder now, the others with reasons, and folders that went along
    because nothing was left in them.
    """

    steps: list[Difference] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)


class Worker:
    """Does a plan, for the first time or again after it was interrupted."""

    def __init__(self, before: Manifest, source: Source, host: Tree, temporary_prefix: str, chosen: Store) -> None:
        """`before` is the folder as the plan found it; `chosen` has the texts made of some hunks."""
        self._before = before
        self._host = host
        self._putter = Putter(source, temporary_prefix, chosen, devices_of(before))
        self._prefix = temporary_prefix
        self._done = Done()
        self._there: set[str] = set()
        self._droppable: frozenset[str] = frozenset()

    def run(self, plan: Plan) -> Done:
        """Do all steps; what cannot be done is a conflict."""
        self._droppable = plan.droppable
        self._sweep(plan.steps)
        for step in plan.steps:
            try:
                self._one(step)
            except (Conflict, OSError) as error:
                self._done.conflicts[step.path] = explain(error)
            else:
                self._done.steps.append(step)
                self._there.add(step.path)
        return self._done

    def _sweep(self, steps: Collection[Difference]) -> None:
        """Remove what an interrupted run of ours left beside the files and folders it was making."""
        paths = [step.path for step in steps]
        for folder in {path[:index] for path in paths for index, char in enumerate(path) if char == "/"} | {""}:
            try:
                left = [f for f in self._host.listing(folder) if f.path.rpartition("/")[2].startswith(self._prefix)]
            except OSError:
                continue  # the folder is new, or in conflict: the put will say so
            for found in left:
                with self._host.at(found.path) as place:
                    if file_kind(found.info.st_mode) is Kind.DIRECTORY:
                        place.rmdir()
                    else:
                        place.unlink()

    def _one(self, difference: Difference) -> None:
        hidden = self._before.hidden_by(difference.path)
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
            _check(difference, current)
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
                    if folder in self._before.entries and folder not in self._there:
                        raise Conflict(f"its folder {folder} was removed here meanwhile")
                    self._putter.make_folder(place)
                elif file_kind(info.st_mode) is not Kind.DIRECTORY:
                    raise Conflict(f"its folder {folder} is {_what(examine(place))} here")

    def _delete(self, difference: Difference) -> None:
        before = difference.before
        assert before is not None
        try:
            with self._host.at(difference.path) as place:
                current = examine(place)
                if current is not None:
                    _check(difference, current)
                    if before.kind is Kind.DIRECTORY:
                        place.rmdir()
                    else:
                        place.unlink()
        except (FileNotFoundError, NotADirectoryError):
            pass  # it, or the folder it was in, is gone already
        self._drop_folders(difference.path)

    def _drop_folders(self, path: str) -> None:
        """Folders that the session no longer has go with the last thing they held."""
        folder = path.rpartition("/")[0]
        while folder in self._droppable:
            try:
                with self._host.at(folder) as place:
                    place.rmdir()
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return
                raise
            self._done.dropped.add(folder)
            folder = folder.rpartition("/")[0]

    def _clear(self, path: str, place: Place) -> None:
        """Remove a folder that a file takes the place of; all it may still hold is folders that went with it."""
        below = [
            name
            for name, entry in self._before.entries.items()
            if name.startswith(path + "/") and entry.kind is Kind.DIRECTORY
        ]
        for name in sorted(below, reverse=True):
            try:
                with self._host.at(name) as inner:
                    inner.rmdir()
            except FileNotFoundError:
                pass
            self._done.dropped.add(name)
        place.rmdir()


def _check(difference: Difference, current: Entry | None) -> None:
    """Raise `Conflict` unless the host still has what the session started from."""
    before = difference.before
    if current is None:
        if before is None or before.kind is not difference.after_kind:
            return  # a type change takes two steps: stopped between them, nothing is there
        raise Conflict("was removed here meanwhile")
    if before is None:
        raise Conflict(f"appeared here meanwhile, as {_what(current)}")
    if current.kind is not before.kind:
        raise Conflict(f"became {_what(current)} here meanwhile")
    if (current.sha256, current.target) != (before.sha256, before.target):
        raise Conflict("was changed here meanwhile")


def _what(entry: Entry | None) -> str:
    if entry is None:
        return "missing"
    if entry.kind is Kind.OTHER:
        return special_name(entry.target)
    return {Kind.FILE: "a file", Kind.DIRECTORY: "a folder", Kind.LINK: "a link"}[entry.kind]
