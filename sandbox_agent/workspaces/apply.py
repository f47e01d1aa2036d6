"""Chooses what goes to the person's folder and plans it: what is withheld, in which order, which hunks of a file.

What a step replaces is kept first, and the plan is on disk before anything is changed; `worker` does it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Mapping

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ApplyOutcome, Kind
from sandbox_agent.workspaces.hunks import Span, pick
from sandbox_agent.workspaces.ledger import Ledger, NotKeptError, Plan
from sandbox_agent.workspaces.manifest import Entry
from sandbox_agent.workspaces.nofollow import NotRegularError
from sandbox_agent.workspaces.put import Conflict, explain
from sandbox_agent.workspaces.putspecial import withheld as withheld_for
from sandbox_agent.workspaces.review import Difference, Review
from sandbox_agent.workspaces.source import CHANGED_IN_COPY, ContentError, Source
from sandbox_agent.workspaces.textdiff import MAX_FILE_BYTES
from sandbox_agent.workspaces.tree import Tree
from sandbox_agent.workspaces.worker import Done, Worker

Hunks = Mapping[str, Collection[Span]]
"""Paths of which only some hunks go, with those."""


class Applier:
    """One `apply`: chooses, writes down what it will do, and does one path after the other."""

    def __init__(self, review: Review, source: Source, host: Tree, temporary_prefix: str, ledger: Ledger) -> None:
        self._review = review
        self._source = source
        self._host = host
        self._ledger = ledger
        self._worker = Worker(review.before, source, host, temporary_prefix, ledger.store)
        self.conflicts: dict[str, str] = {}

    def apply(self, paths: Collection[str] | None, hunks: Hunks | None = None) -> tuple[ApplyOutcome, Done]:
        """See `Workspace.apply`. The ledger is left open: the caller ends it once it has taken the outcome over."""
        chosen, withheld = self._choose(paths, hunks or {})
        ready = [step for difference in chosen if (step := self._ready(difference, (hunks or {}).get(difference.path)))]
        partial = frozenset(step.path for step in ready if hunks and step.path in hunks)
        plan = Plan(tuple(_ordered(ready)), partial, self._droppable(ready))
        self._ledger.begin(plan)
        done = self._worker.run(plan)
        conflicts = self.conflicts | done.conflicts
        applied = {step.path for step in done.steps}
        rest = tuple(path for path in self._review.differences if path not in applied or path in partial)
        whole, partly = tuple(sorted(applied - partial)), tuple(sorted(applied & partial))
        return ApplyOutcome(whole, rest, conflicts, withheld, partly), done

    def _choose(self, paths: Collection[str] | None, hunks: Hunks) -> tuple[list[Difference], dict[str, str]]:
        """The differences to apply, and those that a wider choice covers but only their own name brings over."""
        differences = self._review.differences
        named = None if paths is None else {path.rstrip("/") for path in paths}
        if named is not None:
            folders = {path[:index] for path in differences for index, char in enumerate(path) if char == "/"}
            unknown = sorted((named - differences.keys() - folders) | (hunks.keys() - differences.keys()))
            if unknown:
                raise WorkspaceError(f"not among the changes: {', '.join(unknown)}")
        chosen, withheld = [], {}
        for path, difference in differences.items():
            below = named is not None and any(path.startswith(name + "/") for name in named)
            if named is not None and path not in named and path not in hunks and not below:
                continue
            why = withheld_for(difference.after, named=path in (named or ()))
            if why is None:
                chosen.append(difference)
            else:
                withheld[path] = why
        return chosen, withheld

    def _ready(self, difference: Difference, spans: Collection[Span] | None) -> Difference | None:
        """The step for a difference, with what it replaces kept; None, and a conflict, if it cannot be had."""
        try:
            step = difference if spans is None else self._partly(difference, spans)
            self._ledger.keep_before(step, self._host)
        except NotRegularError:
            return difference  # somebody put a FIFO there: doing it says what is wrong
        except Conflict as error:
            self.conflicts[difference.path] = str(error)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and not isinstance(error, NotKeptError):
                return difference  # likewise, with a link or a file on its way
            self.conflicts[difference.path] = f"what is there now cannot be kept before it goes: {error.strerror}"
        else:
            return step
        return None

    def _partly(self, difference: Difference, spans: Collection[Span]) -> Difference:
        """The difference that brings only some hunks: its text is made here and put into the store."""
        before, after = difference.before, difference.after
        if before is None or after is None or before.kind is not Kind.FILE or after.kind is not Kind.FILE:
            raise WorkspaceError(f"{difference.path}: has no hunks to choose from")
        try:
            with self._host.at(difference.path) as place:
                old = place.read_bytes(MAX_FILE_BYTES + 1)
            with self._source.open(difference.path, after) as fd, os.fdopen(os.dup(fd), "rb") as file:
                new = file.read(MAX_FILE_BYTES + 1)
        except ContentError as error:
            raise Conflict(str(error)) from error
        except OSError as error:
            raise Conflict(explain(error)) from error
        if hashlib.sha256(old).hexdigest() != before.sha256:
            raise Conflict("was changed here meanwhile")
        if hashlib.sha256(new).hexdigest() != after.sha256:
            raise Conflict(CHANGED_IN_COPY)
        try:
            made = pick(old, new, spans)
        except ValueError as error:
            raise WorkspaceError(f"{difference.path}: {error}") from error
        entry = Entry(Kind.FILE, self._ledger.store.put(made), before.mode, len(made))
        return Difference(difference.path, "modified", before, entry)

    def _droppable(self, steps: Collection[Difference]) -> frozenset[str]:
        """Folders above removed paths that the session does not have any more."""
        before, after, found = self._review.before.entries, self._review.after, set()
        for step in steps:
            folder = step.path.rpartition("/")[0] if step.after is None else ""
            while folder and folder in before and before[folder].kind is Kind.DIRECTORY and folder not in after:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)


def _ordered(chosen: list[Difference]) -> list[Difference]:
    """Parents before what they hold, deletions last and deepest first, what makes room for a file before all."""
    replaced = {d.path for d in chosen if d.before and d.before.kind is Kind.DIRECTORY and d.after is not None}
    gone = [d for d in reversed(chosen) if d.after is None]
    early = [d for d in gone if any(d.path.startswith(path + "/") for path in replaced)]
    late = [d for d in gone if d not in early] if early else gone
    return early + [d for d in chosen if d.after is not None] + late
