"""What others change in the folder while a session runs: told as an event, once for a path and its state."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from engine_session import NoWorkspace, make_session, of, recorded
from workspace_trees import Link, grow

from sandbox_agent.engine.drifting import TOLD_PATHS, event_of, look_now_and_then, news, together, told_by
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.events import FolderDrifted
from sandbox_agent.workspaces.base import Drift
from sandbox_agent.workspaces.drift import drifted
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.survey import survey
from sandbox_agent.workspaces.tree import Tree

DONE = {"text": "Done."}
CHANGED = Drift("a", "modified", "1")


class Drifting(NoWorkspace):
    """A workspace whose folder has drifted as its list says."""

    def __init__(self, *found: Drift) -> None:
        self.found = found

    def drift(self) -> tuple[Drift, ...]:
        return self.found


def kinds(folder: Path, change: dict[str, object]) -> dict[str, str]:
    """What a folder's own stamps say after a change to it."""
    with Tree(folder) as tree:
        manifest = survey(tree, Masks(()), uid=os.getuid()).manifest
        for path, what in change.items():
            if what is None or (folder / path).is_symlink():
                (folder / path).unlink()
            if isinstance(what, int):
                (folder / path).chmod(what)
            elif what is not None:
                grow(folder, {path: what})  # type: ignore[dict-item]
        return {drift.path: drift.kind for drift in drifted(manifest, tree)}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"f": b"other"}, {"f": "modified"}),
        ({"f": 0o600}, {"f": "mode"}),
        ({"f": None}, {"f": "deleted"}),
        ({"new": b""}, {"new": "added"}),
        ({"l": Link("elsewhere")}, {"l": "link"}),
        ({"l": Link("f")}, {}),
        ({"l": b"1"}, {"l": "type"}),
    ],
)
def test_kinds_by_stamps(tmp_path: Path, change: dict[str, object], kind: dict[str, str]) -> None:
    """An overlay's folder tells by its own stamps how each path drifted; a link made anew as it was is none."""
    folder = grow(tmp_path / "host", {"f": b"1", "l": Link("f")})

    assert kinds(folder, change) == kind


async def tell(session: Session) -> list[FolderDrifted]:
    """What a look tells."""
    with session.listen() as events:
        await session.tell_drift()
        session.hang_up()
        return of([event async for event in events], FolderDrifted)


async def test_drift_is_told_once_for_a_path_and_state(tmp_path: Path) -> None:
    """It is recorded, not said again, and said again when the file changes once more."""
    async with make_session([DONE], tmp_path) as session:
        session.workspace = Drifting(CHANGED, Drift("b", "deleted"))  # type: ignore[assignment]
        first = await tell(session)
        second = await tell(session)
        session.workspace = Drifting(CHANGED._replace(state="2"), Drift("b", "deleted"))  # type: ignore[assignment]
        third = await tell(session)

    assert [[one["path"] for one in event.changed] for event in first + second + third] == [["a", "b"], ["a"]]
    assert of(recorded(tmp_path), FolderDrifted) == first + third


def test_a_session_that_goes_on_knows_what_was_told() -> None:
    """From the record: only another state of a path is news."""
    told = told_by([event_of([CHANGED, Drift("b", "deleted")])])

    assert news([CHANGED, Drift("b", "added", "5")], told) == [Drift("b", "added", "5")]


def test_git_counts_as_its_folder() -> None:
    """A commit of the person's is one line, at any depth, and not twenty."""
    inside = [Drift(".git/index", "modified", "1"), Drift(".git/objects/ab", "added", "2")]
    [top, inner] = together([*inside, Drift("s/.git", "added", "3")])

    assert (top[:2], inner[:2]) == ((".git", "modified"), ("s/.git", "added"))
    assert together(inside[:1])[0].state != top.state


def test_only_the_first_of_very_many_are_named() -> None:
    """The rest is a number."""
    event = event_of([Drift(f"{number:05}", "added", "1") for number in range(TOLD_PATHS + 5)])

    assert (len(event.changed), event.changed_count) == (TOLD_PATHS, TOLD_PATHS + 5)


@pytest.mark.parametrize("fault", [WorkspaceError("gone"), PermissionError("closed")])
async def test_looking_ends_where_the_folder_cannot_be_looked_at(fault: Exception) -> None:
    """The run goes on; the review says what is wrong."""
    looks = []

    async def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise fault

    with anyio.fail_after(5):
        await look_now_and_then(look, every_s=0.001)

    assert len(looks) == 3
