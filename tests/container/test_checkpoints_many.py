"""Checkpoints of many files: looked at by several processes, kept in packs; a fork copies what differs, and no more."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from checkpoint_rig import OWNER, CheckpointRig, session
from workspace_places import give

from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Steps

pytestmark = pytest.mark.docker

FOLDERS, FILES, NEW = 50, 90, 1500
"""More than enough entries for two processes."""

CHANGE = f"""
rm -r d7 d8/f3; mv d9 d10/moved; echo more >> d11/f5; chmod 0 d12; ln d13/f1 d13/again
mkdir -p new; for number in $(seq {NEW}); do echo $number > new/$number; done; printf '' > new/empty
head -c 300000 /dev/urandom > new/large
"""


@pytest.fixture(scope="module")
async def many(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckpointRig]:
    """A session that has changed much, and taken one step of it."""
    parent = tmp_path_factory.mktemp("many")
    host = parent / "project"
    for number in range(FOLDERS * FILES):
        place = host / f"d{number // FILES}" / f"f{number % FILES}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{number}\n")
    give(host, OWNER)
    async with session("overlay", host, parent / f"test-{secrets.token_hex(6)}") as made:
        step = await made.change(CHANGE)
        assert step is not None
        # Each folder gone and come counts, and so do those of d13/again's group.
        assert step.changed_count == 1 + FILES + 1 + 2 * (1 + FILES) + 1 + 1 + 2 + 1 + NEW + 2
        yield made


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_many_small_contents_are_few_files(many: CheckpointRig) -> None:
    """New ones, and those of the base that were removed; only the large one has a file of its own."""
    kept = files(many.checkpoints.steps.store.folder)
    assert len(kept) <= 5
    assert sum(path.stat().st_size > 290_000 for path in kept) == 1


async def test_undo_of_many_brings_all_back(many: CheckpointRig) -> None:
    """And forth again, as an independent look says."""
    after = await many.tree()
    await many.checkpoints.undo(0)
    before = await many.tree()
    assert len(before) == FOLDERS * FILES + FOLDERS + 1
    await many.checkpoints.undo(1)
    assert await many.tree() == after


async def test_a_fork_has_the_tree_and_copies_what_differs_only(many: CheckpointRig, tmp_path: Path) -> None:
    """Its layer holds the files that the first session changed, its store the same files on disk."""
    after = await many.tree()
    state = tmp_path / f"test-{secrets.token_hex(6)}"
    state.mkdir(mode=0o700)
    many.checkpoints.steps.share(1, Steps(state / CHECKPOINTS_NAME))
    kept = {path.stat().st_ino for path in files(many.checkpoints.steps.store.folder)}
    assert {path.stat().st_ino for path in files(state / CHECKPOINTS_NAME / "store")} <= kept
    async with session("overlay", many.place.workspace.host, state) as fork:
        assert [step.origin for step in fork.steps] == ["fork"]
        upper = state / "overlay" / "upper"
        copied = {os.path.relpath(path, upper) for path in files(upper)}  # the look below changes modes for a moment
        assert await fork.tree() == after
    moved = {f"d10/moved/f{number}" for number in range(FILES)}
    new = {f"new/{number}" for number in (*range(1, NEW + 1), "empty", "large")}
    assert copied == {"d11/f5", "d13/f1", "d13/again"} | moved | new
