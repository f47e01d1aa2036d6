"""The property of checkpoints: random trees, random changes with a writer that never stops, and after an undo to any
quiet step the tree is what it was, byte for byte and mode for mode.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import random_changes
from checkpoint_rig import OWNER, CheckpointRig, Tree, session
from workspace_places import give

pytestmark = pytest.mark.docker
PROGRAM = Path(random_changes.__file__).read_text()
CASES = ((1, "overlay"), (2, "overlay"), (3, "copy"), (4, "volume"))


def random_folder(parent: Path, seed: int) -> Path:
    """A folder of the person's with all sorts of entries."""
    host = parent / "project"
    host.mkdir()
    dice = random.Random(seed)
    root = str(host).encode()
    for _ in range(40):
        try:
            random_changes.one_change(dice, root)
        except OSError:
            continue
    for path in random_changes.everything(root):
        if not Path(path.decode("utf-8", "surrogateescape")).is_symlink():
            Path(path.decode("utf-8", "surrogateescape")).chmod(0o755)
    give(host, OWNER)
    return host


async def run(rig: CheckpointRig, *arguments: str) -> None:
    ended = await rig.place.sandbox.exec(["python3", "-c", PROGRAM, *arguments], cwd="/", timeout_s=120)
    assert ended.exit_code == 0, ended.stderr


async def check(rig: CheckpointRig, seed: int, changes: int) -> None:
    """Steps of changes, some with the writer alive; then back to each quiet one, in any order, and to the first."""
    dice = random.Random(seed)
    quiet: dict[int, Tree] = {0: await rig.tree()}
    for number in range(3):
        await run(rig, str(seed * 100 + number), str(changes))
        step = await rig.take()
        if step is not None:
            quiet[step.step] = await rig.tree()
        writer = await rig.place.sandbox.open(["python3", "-c", PROGRAM, "for-ever", str(seed)], cwd="/")
        try:
            assert await writer.receive()
            await rig.take()
            await rig.checkpoints.undo(dice.choice(list(quiet)))
        finally:
            await writer.aclose()
    for number in [*dice.sample(sorted(quiet), len(quiet)), 0]:
        await rig.checkpoints.undo(number)
        assert await rig.tree() == quiet[number], f"seed {seed}, step {number}"
    assert not [text for text in rig.warnings if "no checkpoint" in text]


@pytest.fixture
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CheckpointRig]:
    mode, seed = request.param
    async with session(mode, random_folder(tmp_path, seed), tmp_path / f"test-{secrets.token_hex(6)}") as made:
        yield made


@pytest.mark.parametrize(("rig", "seed"), [((mode, seed), seed) for seed, mode in CASES], indirect=["rig"])
async def test_undo_is_exact_whatever_was_done(rig: CheckpointRig, seed: int) -> None:
    """A few seeds."""
    await check(rig, seed, 25)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("rig", "seed"),
    [((mode, seed), seed) for seed in range(100, 130) for mode in ("overlay", "copy", "volume")],
    indirect=["rig"],
)
async def test_undo_is_exact_for_many_trees(rig: CheckpointRig, seed: int) -> None:
    """Many seeds and many changes."""
    await check(rig, seed, 120)
