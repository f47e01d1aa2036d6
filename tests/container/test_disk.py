"""The limit for what a session writes: measuring what only the engine holds, and the disk as it is mounted."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from workspace_places import placed

from sandbox_agent.engine.disk import DiskLimit
from sandbox_agent.workspaces.disk import has_disk, make_disk, mount_disk, remove_disk
from sandbox_agent.workspaces.mounting import detach, is_mounted

MIB = 2**20
AS_ROOT = [pytest.param("root", id="root")] if os.getuid() == 0 else []


@pytest.mark.docker
async def test_what_an_engines_volume_takes_is_measured_inside(tmp_path: Path) -> None:
    """A call that takes too much is stopped; what the folder held does not count, and removing things is let be."""
    async with placed("volume", tmp_path, os.getuid() or 1234) as place, anyio.create_task_group() as tasks:
        limit = DiskLimit(place.workspace, place.sandbox, place.state, 8 * MIB)
        assert limit.warning is not None
        assert "volume of the engine" in limit.warning
        tasks.start_soon(limit.watch)
        with limit.guarding() as guarded:
            await place.bash("for i in $(seq 1 400); do head -c 1M /dev/zero > part$i; sleep 0.05; done")
        assert guarded.told is not None
        assert "sandbox.disk: 8 MiB" in guarded.told
        with limit.guarding() as guarded:
            await place.bash("sleep 0.3; rm -f part*; echo room > room")
        assert guarded.told is None
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("who", AS_ROOT)
def test_a_disk_that_is_still_held_is_mounted_again_as_the_same_one(tmp_path: Path, who: str) -> None:
    """Two devices on one file would destroy it: what a process still has open is the file that the next mount shows."""
    place = tmp_path / "place"
    place.mkdir()
    make_disk(tmp_path, place, 32 * MIB)
    try:
        with (place / "file").open("w") as held:
            detach(place)
            assert not is_mounted(place)
            assert mount_disk(tmp_path, place)
            held.write("written through the first mount")
            held.flush()
            assert (place / "file").read_text() == "written through the first mount"
    finally:
        remove_disk(tmp_path, place)
    assert not is_mounted(place)
    assert not has_disk(tmp_path)
    assert [
        path for path in Path("/sys/block").glob("loop*/loop/backing_file") if str(tmp_path) in path.read_text()
    ] == []


@pytest.mark.parametrize("who", AS_ROOT)
def test_what_cannot_be_made_leaves_nothing(tmp_path: Path, who: str) -> None:
    """Neither file nor mount, where the file system is refused."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "in-the-way").touch()
    with pytest.raises(OSError, match="mke2fs"):
        make_disk(tmp_path, place, 32 * MIB, there_files=2**33)
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    assert not is_mounted(place)
