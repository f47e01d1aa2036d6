"""The property of the review gate: random trees, random changes beside a writer that never stops; the person's folder
is untouched until something is applied, and then it has what was chosen and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
import random_changes
from checkpoint_rig import OWNER, Tree, look
from test_checkpoints_property import PROGRAM, random_folder
from workspace_places import Place, give, opened

from sandbox_agent.workspaces.base import ApplyOutcome

pytestmark = pytest.mark.docker

Gist = dict[str, tuple[object, ...]]
"""Path (in hex) to what a review brings over: the kind, the executable bit, and a content or target."""


def gist_of(tree: Tree) -> Gist:
    """What of a container's tree comes to the folder."""
    return {path: _gist(int(str(mode)), str(content)) for path, (mode, content, *_) in tree.items() if path}


def _gist(mode: int, content: str) -> tuple[object, ...]:
    return stat.S_IFMT(mode), stat.S_ISREG(mode) and bool(mode & 0o100), content


def here(host: Path) -> Gist:
    """The same of a folder of this machine."""
    found: Gist = {}
    for path, info in entries(host):
        content = ""
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(os.path.join(os.fsencode(host), path)).hex()
        elif stat.S_ISREG(info.st_mode):
            content = digest(os.path.join(os.fsencode(host), path))
        found[path.hex()] = _gist(info.st_mode, content)
    return found


def entries(host: Path) -> list[tuple[bytes, os.stat_result]]:
    found = [os.path.relpath(path, os.fsencode(host)) for path in random_changes.everything(os.fsencode(host))]
    return [(path, os.lstat(os.path.join(os.fsencode(host), path))) for path in found]


def digest(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def exactly(host: Path) -> dict[bytes, tuple[object, ...]]:
    """All that could be touched: content, mode, owner, time of the change, the inode."""
    gist = here(host)
    return {
        path: (gist[path.hex()], info.st_mode, info.st_uid, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        for path, info in entries(host)
    }


def simpler(host: Path, mode: str) -> Path:
    """Without what is never replaced, which other tests are for: files with other names, FIFOs that a copy leaves."""
    for path, info in entries(host):
        if stat.S_ISFIFO(info.st_mode) and mode != "overlay":
            os.unlink(os.path.join(os.fsencode(host), path))
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            place = os.path.join(os.fsencode(host), path)
            shutil.copy2(place, place + b"-copy")
            os.replace(place + b"-copy", place)
    give(host, OWNER)
    return host


async def changed(place: Place, seed: int, changes: int) -> None:
    """So many changes, some of them beside a writer that never stops."""
    for number in range(2):
        arguments = ["python3", "-c", PROGRAM, str(seed * 100 + number), str(changes)]
        ended = await place.sandbox.exec(arguments, cwd="/", timeout_s=120)
        assert ended.exit_code == 0, ended.stderr
        writer = await place.sandbox.open(["python3", "-c", PROGRAM, "for-ever", str(seed + number)], cwd="/")
        try:
            assert await writer.receive()
            await place.checkpoints.take(["call"], place.checkpoints.expect())
        finally:
            await writer.aclose()


def in_hex(paths: Iterable[str]) -> set[str]:
    return {path.encode("utf-8", "surrogateescape").hex() for path in paths}


def followed(before: Gist, after: Gist, now: Gist, outcome: ApplyOutcome, chosen: set[str]) -> None:
    """Every path is as the session has it where it was chosen and went, and as it was where it was not."""
    went, kept = in_hex(outcome.applied), in_hex(outcome.unapplied)
    assert went | in_hex(outcome.conflicts) == in_hex(chosen)
    for path in went:
        assert now.get(path) == after.get(path), bytes.fromhex(path)
    for path in kept - went:
        # A folder that something chosen lies in, or made way for, is there all the same.
        if not any(other.startswith(path + "2f") or path.startswith(other + "2f") for other in went):
            assert now.get(path) == before.get(path), bytes.fromhex(path)


async def check(mode: str, parent: Path, seed: int, changes: int) -> None:
    dice = random.Random(seed)
    host = simpler(random_folder(parent, seed), mode)
    untouched, before = exactly(host), here(host)
    async with opened(mode, host, parent / f"test-{secrets.token_hex(6)}") as place:
        await changed(place, seed, changes)
        after = gist_of(await look(place))
        await place.end()
        found = [change.path for change in place.workspace.changes()]
        assert exactly(host) == untouched

        some = [path for path in found if dice.random() < 0.5]
        outcome = place.workspace.apply(some)
        below = {path for path in found if any(path.startswith(name + "/") for name in some)}
        assert set(outcome.withheld) <= below - set(some)
        followed(before, after, here(host), outcome, {*some, *below} - outcome.withheld.keys())
        rest = [change.path for change in place.workspace.changes()]
        outcome = place.workspace.apply(rest)

        assert (outcome.conflicts, outcome.withheld, outcome.unapplied) == ({}, {}, ()), f"seed {seed}"
        assert here(host) == after, f"seed {seed}"
        assert place.workspace.changes() == ()


@pytest.mark.parametrize(("seed", "mode"), [(11, "overlay"), (13, "volume")])
async def test_the_folder_has_what_was_chosen(tmp_path: Path, seed: int, mode: str) -> None:
    """A few seeds."""
    await check(mode, tmp_path, seed, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(200, 230))
@pytest.mark.parametrize("mode", ["overlay", "copy", "volume"])
async def test_the_folder_has_what_was_chosen_for_many_trees(tmp_path: Path, seed: int, mode: str) -> None:
    """Many seeds and many changes."""
    await check(mode, tmp_path, seed, 100)
