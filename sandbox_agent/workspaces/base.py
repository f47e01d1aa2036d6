"""What a workspace is: where the person's folder is mounted from, what the run changed in it, and the way back.

All methods are synchronous and may take seconds: the engine calls them through threads. `changes` and `apply` are
called with the sandbox closed, and still trust nothing they find in the copy.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from sandbox_agent.types import JsonObject, OverlayMount, WorkspaceMount
from sandbox_agent.workspaces.hunks import Span

ROOT_FOLDER_ID = 65532
"""The tools' uid and gid when the folder belongs to root: tools never run as 0."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who the tools run as. Neither number is ever 0.

    `groups` are further ones: the folder's own, where the person is in it without that being their first. Without it
    a shared folder's modes would mean something else inside, and its set-group-ID bit could not be brought back.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


View = Callable[[OverlayMount, Owner], int]
"""Has an overlay mounted for an ordinary user, while no container uses it: a descriptor of its top, to be closed."""


class Kind(enum.StrEnum):
    """What a path is, links not followed. `OTHER` is a FIFO, socket or device."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs from the folder as it was at the start.

    `kind` is added, modified (with or without the executable bit), deleted, mode (only the executable bit), type
    (another sort of entry), link (other target) or other (a FIFO, socket or device appeared). `entry` is what the path
    is now, or was when it is deleted. A folder is listed only when it is empty, or in the way of a type change.
    Digests are SHA-256 of the content, for a link of its target's text; from 1 GiB on they are prefixed "blocks:"
    and computed without reading holes. `danger` says what it may do later on the host, None if nothing is known.
    `diff` is a unified diff, unsanitised; None with the cause in `note` (binary, too large, original is gone).
    """

    path: str
    kind: str
    entry: Kind
    before_sha256: str | None = None
    after_sha256: str | None = None
    binary: bool = False
    size_before: int | None = None
    size_after: int | None = None
    mode_before: int | None = None
    mode_after: int | None = None
    danger: str | None = None
    diff: str | None = None
    note: str | None = None

    def as_json(self) -> JsonObject:
        """All fields, modes as octal text as `ls` and git write them."""
        return {
            "path": self.path,
            "kind": self.kind,
            "entry": self.entry.value,
            "before_sha256": self.before_sha256,
            "after_sha256": self.after_sha256,
            "binary": self.binary,
            "size_before": self.size_before,
            "size_after": self.size_after,
            "mode_before": None if self.mode_before is None else f"{self.mode_before:04o}",
            "mode_after": None if self.mode_after is None else f"{self.mode_after:04o}",
            "danger": self.danger,
            "diff": self.diff,
            "note": self.note,
        }


class Drift(NamedTuple):
    """One path of the person's folder that somebody else than the session changed since the start.

    `kind` is added, deleted, modified, mode (the permissions alone), type (another sort of entry) or link (another
    target). `state` names what is there now: the same text until it changes once more.
    """

    path: str
    kind: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What became of every change.

    `unapplied` is all that is only in the copy: not chosen, in conflict, or withheld. `conflicts` has a reason for
    each path that was chosen and could not go; `withheld` for each that goes only when its path is named. `partial`
    are paths of which some hunks went; they are in `unapplied` for the rest.
    """

    applied: tuple[str, ...] = ()
    unapplied: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)
    partial: tuple[str, ...] = ()


class Workspace(Protocol):
    """A folder as one session sees it."""

    @property
    def mode(self) -> str:
        """ "overlay", "copy" or "bind"."""
        ...

    @property
    def host(self) -> Path:
        """The person's folder, links resolved."""
        ...

    @property
    def mount(self) -> WorkspaceMount:
        """What to mount at `/workspace`. It is there from the beginning; `prepare` fills it."""
        ...

    @property
    def owner(self) -> Owner:
        """Who the tools run as."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the person; more may come with `prepare` and `changes`."""
        ...

    @property
    def masked(self) -> Mapping[str, str]:
        """Paths the session must not see, with the pattern that says so; complete once `prepare` has ended.

        A path stands for all below it. A copy leaves them out, an overlay shows empty files.
        """
        ...

    @property
    def covers(self) -> tuple[str, ...]:
        """Files among `masked` that the sandbox has to cover itself; complete once `prepare` has ended."""
        ...

    @property
    def mount_waits(self) -> bool:
        """Whether `prepare` must have ended before the container starts, not only before the first tool."""
        ...

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """Make it ready for the first tool.

        Args:
            progress: told now and then how many files are done; an exception from it ends the work.

        Raises:
            WorkspaceError: the disk is full, the folder vanished, or it holds too many files.
        """
        ...

    def changes(self) -> tuple[Change, ...]:
        """What differs from the start, by path.

        Raises:
            WorkspaceError: `prepare` never ended, or the tree is larger than can be walked.
        """
        ...

    def changes_at(self, step: int) -> tuple[Change, ...]:
        """What differed from the start at a checkpoint, by path: for a look while the session goes on.

        Nothing of what tools can write is opened, no mount is made, and `apply` does not go by it.

        Raises:
            WorkspaceError: there is no such checkpoint, or the folder is gone.
        """
        ...

    @property
    def commits(self) -> tuple[str, ...]:
        """Git's folders with commits or branches that only the session has, as `changes` found them."""
        ...

    def drift(self) -> tuple[Drift, ...]:
        """What the person, or anybody but the session, changed in the folder since the start, by path.

        Raises:
            WorkspaceError: the folder is gone, or `prepare` never ended.
        """
        ...

    def apply(
        self, paths: Collection[str] | None = None, hunks: Mapping[str, Collection[Span]] | None = None
    ) -> ApplyOutcome:
        """Bring changes to the person's folder; an apply that was interrupted is finished first.

        Args:
            paths: paths of changes, or of folders for all below them. None is all but links, which go only when
                their own path is given.
            hunks: for paths of which only a part is to go, the lines (see `hunks`).

        Raises:
            WorkspaceError: the person's folder is gone, or a path is not among the changes.
        """
        ...

    def settle(self) -> ApplyOutcome | None:
        """Finish an apply that was interrupted; None if there was none. `unapplied` is left empty: nobody looked.

        Raises:
            WorkspaceError: the person's folder is gone, or the record of the apply cannot be read.
        """
        ...

    def release(self) -> None:
        """Give back what only a running container needs; `prepare` gets it again. Safe to call twice.

        Raises:
            OSError: a mount of ours cannot be removed.
        """
        ...

    def discard(self) -> None:
        """Remove the copy and all that belongs to it. The person's folder is not touched. Safe to call twice.

        Raises:
            LeftToRootError: an overlay's folder that only root can remove is left; see `sandboxes.cleaner`.
        """
        ...
