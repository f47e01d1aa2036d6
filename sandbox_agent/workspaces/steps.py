"""The checkpoints of a session on disk: one file a step, the first with every node, each later one with what changed.

A step file is written whole or not at all, after the contents it names, so whoever is killed loses no earlier step.
What is under way when somebody is killed is named by a marker file, and done again by the next start.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Node, Snapshot, pack, snapshot_of, unpack
from sandbox_agent.workspaces.store import Store

CHECKPOINTS_NAME = "checkpoints"
"""In a session's state folder."""

WHOLE = ("base", "fork")
_STEP_SUFFIX = ".step"
_WANTED_NAME = "wanted"
_RESTORING_NAME = "restoring.json"
_NEXT_NAME = "next"


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint.

    `origin` says why it was taken: "base" (before the first tool), "calls", "start" (changes that a killed run left),
    "undo" (or what stood just before one), "fork". `workspace` is the token of the workspace it is of: nobody can go
    back to the steps of one that was discarded. `call_ids` are the calls since the step before. `after_seq` is the
    place in the session's record up to which the conversation belongs to it. `restored` is the step whose tree this
    one brought back, None for all others. `bases` are contents of the base that became known, by path; "" is one that
    could not be had any more.
    """

    number: int
    origin: str
    tree_sha256: str
    time_unix_s: float
    workspace: str
    after_seq: int = -1
    call_ids: tuple[str, ...] = ()
    restored: int | None = None
    bases: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether its file has every node, not only what changed."""
        return self.origin in WHOLE

    @property
    def position(self) -> int:
        """The step whose tree this is."""
        return self.number if self.restored is None else self.restored


def step_before(current: Step, first: int) -> int:
    """The step that an undo goes back to when it is not told which; `first` is the first of the workspace.

    Raises:
        WorkspaceError: the tree is that of the first one.
    """
    if current.position <= first:
        raise WorkspaceError(f"the workspace is as it was after step {first}, and nothing lies before step {first}")
    return current.position - 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """A step with its whole tree, and all contents of the base that are known by then or later."""

    step: Step
    snapshot: Snapshot
    bases: dict[str, str]


class Steps:
    """The steps in one folder. Anybody may read; only the process that has the session's lock may write."""

    def __init__(self, folder: Path) -> None:
        """Nothing is made before something is written."""
        self.folder = folder
        self.store = Store(folder / "store")

    def numbers(self) -> list[int]:
        """The steps there are, in order."""
        return sorted(int(path.name.removesuffix(_STEP_SUFFIX)) for path in self.folder.glob(f"[0-9]*{_STEP_SUFFIX}"))

    def headers(self) -> list[Step]:
        """All steps without their trees.

        Raises:
            WorkspaceError: one of the files is damaged.
        """
        return [self.header(number) for number in self.numbers()]

    def header(self, number: int) -> Step:
        """A step without its tree.

        Raises:
            WorkspaceError: there is no such step, or its file is damaged.
        """
        path = self._path(number)
        try:
            with path.open("rb") as file:
                return _step(file.readline())
        except FileNotFoundError:
            raise WorkspaceError(self._no_step(number)) from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WorkspaceError(f"{path}: this checkpoint cannot be read ({error})") from error

    def write(self, step: Step, nodes: Mapping[str, Node], removed: Iterable[str] = ()) -> None:
        """Add a step: what changed since the one before, or every node where it is `whole`."""
        self._write(self._path(step.number), step, nodes, removed)

    def load(self, number: int) -> Loaded:
        """A step with its tree.

        Raises:
            WorkspaceError: there is no such step, or a file up to it is damaged.
        """
        numbers = self.numbers()
        if number not in numbers:
            raise WorkspaceError(self._no_step(number))
        files = {each: self._read(self._path(each)) for each in numbers}
        wanted = files[number][0]
        nodes: dict[str, Node] = {}
        bases: dict[str, str] = {}
        for each, (step, data) in files.items():
            if step.workspace == wanted.workspace:
                bases |= step.bases
                if each <= number:
                    changed, removed = self._unpack(each, data)
                    nodes = {} if step.whole else nodes
                    for path in removed:
                        nodes.pop(path, None)
                    nodes |= changed
        return Loaded(wanted, snapshot_of(nodes), bases)

    def next_number(self) -> int:
        """The number that comes next; it goes on where a discarded workspace's steps ended."""
        numbers = self.numbers()
        if numbers:
            return numbers[-1] + 1
        try:
            return int((self.folder / _NEXT_NAME).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def discard(self) -> None:
        """Remove all steps and contents; the number of the next step is kept. Safe to call again."""
        if self.folder.exists():
            _replace(self.folder / _NEXT_NAME, str(self.next_number()).encode())
            for path in self.folder.glob(f"[0-9]*{_STEP_SUFFIX}"):
                path.unlink(missing_ok=True)
            self.end_restore()
            if not (self.folder / _WANTED_NAME).exists():  # a fork that never began still needs what it begins with
                self.store.discard()

    def share(self, number: int, other: Steps) -> None:
        """Let a fork begin with a step: it gets this workspace's steps and what they name, by links, not by copying.

        Raises:
            WorkspaceError: there is no such step, or a file is damaged.
            OSError: the system refused.
        """
        wanted = self.header(number)
        mine = [step for step in self.headers() if step.workspace == wanted.workspace]
        there = other.folder / _WANTED_NAME
        there.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed: dict[str, Node] = {}
        for step in mine:
            os.link(self._path(step.number), there / self._path(step.number).name)
            if step.number <= number:
                changed |= self._changed(step)
        if lost := [path for path, node in changed.items() if node.lost]:
            raise WorkspaceError(f"step {number} is kept without the content of {lost[0]}; choose another step")
        names = {sha256 for step in mine for sha256 in step.bases.values()}
        for sha256 in names | {node.sha256 or "" for node in changed.values()}:
            if sha256 and self.store.has(sha256):
                self.store.share(sha256, other.store)
        _replace(there / _NEXT_NAME, str(number).encode())

    def _changed(self, step: Step) -> dict[str, Node]:
        """The nodes of a step's file, none where all contents are the base's; a path that is gone names nothing."""
        if step.origin == "base":
            return {}
        nodes, removed = self._unpack(step.number, self._read(self._path(step.number))[1])
        return {**nodes, **dict.fromkeys(removed, Node(Kind.OTHER, 0))}

    @property
    def is_wanted(self) -> bool:
        """Whether this is a fork that has not begun."""
        return (self.folder / _WANTED_NAME / _NEXT_NAME).exists()

    def wanted(self) -> Loaded | None:
        """The tree that a fork is to begin with, None if it has begun or is no fork."""
        folder = self.folder / _WANTED_NAME
        try:
            number = int((folder / _NEXT_NAME).read_text())
        except FileNotFoundError:
            return None
        return Steps(folder).load(number)

    def amend(self, nodes: Mapping[str, Node], removed: Iterable[str]) -> None:
        """Let a fork that has not begun begin with a tree that differs from the step in these paths."""
        there = Steps(self.folder / _WANTED_NAME)
        number = int((there.folder / _NEXT_NAME).read_text())
        last = there.header(number)
        there.write(Step(number + 1, "calls", "", last.time_unix_s, last.workspace), nodes, removed)
        _replace(there.folder / _NEXT_NAME, str(number + 1).encode())

    def fulfilled(self) -> None:
        """The fork has begun."""
        if (self.folder / _WANTED_NAME).exists():
            (self.folder / _WANTED_NAME / _NEXT_NAME).unlink(missing_ok=True)
            shutil.rmtree(self.folder / _WANTED_NAME)

    def begin_restore(self, number: int) -> None:
        """Note that the tree is being brought back to a step, before anything is touched."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(self.folder / _RESTORING_NAME, json.dumps({"to": number}).encode())

    def restoring(self) -> int | None:
        """The step that an interrupted restore was bringing back."""
        try:
            return int(json.loads((self.folder / _RESTORING_NAME).read_text())["to"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(f"{self.folder / _RESTORING_NAME}: cannot be used ({error})") from error

    def end_restore(self) -> None:
        (self.folder / _RESTORING_NAME).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed writers left. Only for the process that has the session's lock."""
        for path in self.folder.glob("*.part"):
            path.unlink(missing_ok=True)
        self.store.sweep()

    def _no_step(self, number: int) -> str:
        numbers = self.numbers()
        return f"there is no step {number}; " + (f"steps are 0 to {numbers[-1]}" if numbers else "there are none")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}{_STEP_SUFFIX}"

    def _write(
        self,
        path: Path,
        step: Step,
        nodes: Mapping[str, Node],
        removed: Iterable[str],
    ) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, json.dumps(asdict(step), separators=(",", ":")).encode("ascii") + b"\n" + pack(nodes, removed))

    def _read(self, path: Path) -> tuple[Step, bytes]:
        try:
            header, _, data = path.read_bytes().partition(b"\n")
            return _step(header), data
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WorkspaceError(f"{path}: this checkpoint cannot be read ({error})") from error

    def _unpack(self, number: int, data: bytes) -> tuple[dict[str, Node], tuple[str, ...]]:
        try:
            return unpack(data)
        except ValueError as error:
            raise WorkspaceError(f"{self._path(number)}: this checkpoint is damaged ({error})") from error


def _step(header: bytes) -> Step:
    raw = json.loads(header)
    return Step(**{**raw, "call_ids": tuple(raw["call_ids"])})


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
    part.replace(path)
