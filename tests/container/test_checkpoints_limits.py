"""Where checkpoints end: sizes, what the person changed meanwhile, hostile processes, and the folder itself."""

from __future__ import annotations

import secrets
from pathlib import Path

import anyio
import pytest
from checkpoint_rig import OWNER, checkpointed, session
from workspace_places import give, opened

from sandbox_agent.engine.taking import Limits
from sandbox_agent.errors import WorkspaceError

pytestmark = pytest.mark.docker


def folder(parent: Path) -> Path:
    host = parent / "project"
    (host / "src").mkdir(parents=True)
    for name in ("one", "two", "src/three"):
        (host / name).write_text(f"{name}\n")
    give(host, OWNER)
    return host


def state(parent: Path) -> Path:
    return parent / f"test-{secrets.token_hex(6)}"


async def test_content_beyond_the_limit_is_told_and_its_step_is_not_gone_back_to(tmp_path: Path) -> None:
    """Steps before and after it are; nothing is touched by the attempt."""
    limits = Limits(checkpoint_bytes=100_000)
    async with session("copy", folder(tmp_path), state(tmp_path), limits=limits) as rig:
        step = await rig.change("head -c 200000 /dev/urandom > large; echo x > small")
        assert step is not None
        assert step.lost == ("large",)
        assert any("without the content of large" in text for text in rig.warnings)
        await rig.change("rm large small two")
        before = await rig.tree()
        with pytest.raises(WorkspaceError, match="large: the content was not kept"):
            await rig.checkpoints.undo(1)
        assert await rig.tree() == before
        await rig.checkpoints.undo(0)
        assert await rig.place.bash("cat two; ls") == "two\none\nsrc\ntwo"


async def test_what_is_read_has_a_limit_whatever_is_added(tmp_path: Path) -> None:
    """The same content again and again, and holes, cost the next call its time and the store nothing."""
    limits = Limits(checkpoint_bytes=1_000_000)
    async with session("copy", folder(tmp_path), state(tmp_path), limits=limits) as rig:
        same = await rig.change("for i in $(seq 9); do head -c 400000 /dev/zero > same$i; done")
        holes = await rig.change("for i in $(seq 9); do truncate -s 4000000 holes$i; done")
        after = await rig.change("echo x > small; touch same*")
    assert same is not None
    assert holes is not None
    assert after is not None
    assert (len(same.lost), len(holes.lost)) == (7, 7)
    assert "small" not in after.lost


async def test_the_session_has_a_limit_too(tmp_path: Path) -> None:
    """Each checkpoint alone would fit."""
    limits = Limits(session_bytes=150_000)
    async with session("copy", folder(tmp_path), state(tmp_path), limits=limits) as rig:
        for name, lost in (("first", ()), ("second", ("second",))):
            step = await rig.change(f"head -c 100000 /dev/urandom > {name}")
            assert step is not None
            assert step.lost == lost


@pytest.mark.parametrize("mode", ["overlay", "copy"])
async def test_what_the_person_changed_first_is_left_to_them(tmp_path: Path, mode: str) -> None:
    """Its old content is nowhere any more; all else is brought back, and the path is named."""
    host = folder(tmp_path)
    async with session(mode, host, state(tmp_path)) as rig:
        (host / "one").write_text("by the person, and longer\n")
        await rig.change("echo by the session > one; echo changed > two")
        reached = await rig.checkpoints.undo(0)
        assert reached.restored.theirs == ("one",)
        assert await rig.place.bash("cat one two") == "by the session\ntwo"
    assert (host / "one").read_text() == "by the person, and longer\n"


async def test_what_the_person_changed_later_is_no_matter(tmp_path: Path) -> None:
    """The content was kept when the session first changed the file."""
    host = folder(tmp_path)
    async with session("overlay", host, state(tmp_path)) as rig:
        await rig.change("echo by the session > one; rm two")
        (host / "one").write_text("by the person, and longer\n")
        (host / "two").unlink()
        await rig.checkpoints.undo(0)
        assert await rig.place.bash("cat one two") == "one\ntwo"


async def test_the_folder_itself_can_be_brought_back(tmp_path: Path) -> None:
    """In mode bind all contents are kept before the first tool."""
    host = folder(tmp_path)
    async with session("bind", host, state(tmp_path)) as rig:
        await rig.change("rm -r src; echo x >> one; mv two four")
        assert sorted(path.name for path in host.iterdir()) == ["four", "one"]
        await rig.checkpoints.undo(0)
    assert {path.relative_to(host).as_posix(): path.read_text() for path in host.rglob("*") if path.is_file()} == {
        "one": "one\n",
        "two": "two\n",
        "src/three": "src/three\n",
    }


async def test_a_killed_helper_is_started_again(tmp_path: Path) -> None:
    """A command that kills everything it can costs the checkpoint nothing."""
    async with session("copy", folder(tmp_path), state(tmp_path)) as rig:
        await rig.place.sandbox.exec(["bash", "-c", "echo x > new; kill -9 -1"], cwd="/workspace")
        step = await rig.take()
        assert step is not None
        assert [change["path"] for change in step.changed] == ["new"]
        assert rig.warnings == []


async def test_a_process_that_kills_all_others_ends_with_an_undo(tmp_path: Path) -> None:
    """While it lives there may be no checkpoint, which is told; the undo ends it first."""
    async with session("copy", folder(tmp_path), state(tmp_path)) as rig:
        script = "cd /workspace; echo started; while :; do echo x >> new; pkill -9 python3; done"
        stream = await rig.place.sandbox.open(["bash", "-c", script], cwd="/")
        assert await stream.receive() == b"started\n"
        await rig.take()
        await rig.checkpoints.undo(0)
        assert await rig.place.bash("ls") == "one\nsrc\ntwo"
        await stream.aclose()


async def test_a_tree_without_end_is_no_harm(tmp_path: Path) -> None:
    """What is nested too deep is told to be in no checkpoint, and goes with an undo all the same."""
    async with session("copy", folder(tmp_path), state(tmp_path)) as rig:
        deep = "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('end', 'w').close()"
        await rig.place.sandbox.exec(["python3", "-c", deep], cwd="/workspace")
        assert await rig.take() is not None
        assert any("nested too deep" in text for text in rig.warnings)
        await rig.checkpoints.undo(0)
        assert await rig.place.bash("ls") == "one\nsrc\ntwo"


async def test_one_exec_per_call_takes_checkpoints_too(tmp_path: Path) -> None:
    """It is slower, and the same."""
    async with opened("copy", folder(tmp_path), state(tmp_path), transport="exec") as place, checkpointed(place) as rig:
        before = await rig.tree()
        await rig.change("rm one; ln -s x two2; chmod 0 two")
        with anyio.fail_after(60):
            await rig.checkpoints.undo()
        assert await rig.tree() == before
