"""Undo in a folder that several people's files are in: whose they were, as far as somebody may give them back."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from checkpoint_rig import OWNER, CheckpointRig, Tree, session
from workspace_places import give

pytestmark = pytest.mark.docker

OTHERS = {
    "group": (OWNER, 7001),
    "theirs": (7002, 7003),
    "roots": (0, 0),
    "dir/inner": (7002, OWNER),
    "dir": (OWNER, 9),
}
"""Paths of others, where we may make such; an ordinary user's folder has only their own."""


def folder(parent: Path) -> Path:
    host = parent / "project"
    (host / "dir" / "empty").mkdir(parents=True)
    for name in ("mine", "group", "theirs", "roots", "dir/inner", "setid", "bits"):
        (host / name).write_text(f"{name}\n")
        (host / name).chmod(0o664)
    os.setxattr(host / "mine", "user.kept", b"1")
    (host / "link").symlink_to("mine")
    give(host, OWNER)
    (host / "bits").chmod(0o6755)
    if os.getuid() == 0:
        for name, owner in OTHERS.items():
            os.chown(host / name, *owner)
        os.chown(host / "link", 7002, 7003, follow_symlinks=False)
        os.chown(host / "dir/empty", 7002, OWNER)
        os.chown(host / "setid", 7002, 7003)
        (host / "setid").chmod(0o4755)
    return host


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckpointRig]:
    """On the overlay: a copy belongs to the tools alone."""
    parent = tmp_path_factory.mktemp("owners")
    async with session("overlay", folder(parent), parent / f"test-{secrets.token_hex(6)}") as made:
        yield made


@pytest.fixture
async def spoilt(tmp_path: Path) -> AsyncIterator[CheckpointRig]:
    """One of its own for what does not come back whole."""
    async with session("overlay", folder(tmp_path), tmp_path / f"test-{secrets.token_hex(6)}") as made:
        yield made


CHANGES = {
    "a rewrite": "for f in group theirs roots dir/inner; do cp $f /tmp/x; rm $f; cp /tmp/x $f; done",
    "other content": "sed -i s/e/E/ group dir/inner; rm theirs; echo new > theirs",
    "removal": "rm -r group theirs roots link; rm dir/inner; rmdir dir/empty",
    "the group alone": "chgrp $(id -g) group dir",
    "another in the place": "mv -f theirs mine; mv group roots; mv dir away; mkdir dir",
    "attributes": """python3 -c 'import os; os.removexattr("mine", "user.kept"); os.setxattr("dir", "user.x", b"1")'""",
}


@pytest.mark.parametrize("what", CHANGES)
async def test_owners_come_back(rig: CheckpointRig, what: str) -> None:
    """Those that the folder had at the start, of files, folders and links; nothing is left to be told."""
    await rig.checkpoints.undo(0)
    before = await rig.tree()
    assert await rig.change(CHANGES[what]) is not None
    reached = await rig.checkpoints.undo(0)

    assert await rig.tree() == before
    assert reached.restored.strangers == {}


def without(tree: Tree, *names: str) -> Tree:
    hidden = {name.encode().hex() for name in names}
    return {path: what for path, what in tree.items() if path not in hidden}


async def test_what_only_root_could_vouch_for_is_told(spoilt: CheckpointRig) -> None:
    """An owner that a path did not have at the start, and set-id bits of somebody else: that is said."""
    rig = spoilt
    await rig.change("mv theirs moved")
    moved = await rig.tree()
    await rig.change("rm moved setid bits")
    reached = await rig.checkpoints.undo()
    told = dict(reached.restored.strangers)

    spoilt_ones = ("moved", "setid", "bits")
    assert without(await rig.tree(), *spoilt_ones) == without(moved, *spoilt_ones)
    assert (await rig.place.bash("cat moved setid bits")).split() == ["theirs", "setid", "bits"]
    assert told.pop("bits") == "had set-id bits, which nothing in a sandbox can give"
    if os.getuid() == 0:
        assert told == {
            "moved": "belonged to 7002:7003, but not when the session began",
            "setid": "belonged to 7002:7003, and has set-id bits",
        }
    else:
        assert told == {}
