"""What an overlay does where folders are not simple, starts are cut short, and engines see other files than we do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from sandbox_rig import UID, endpoint
from workspace_places import give, left_at_engine, mounts_in, opened

from sandbox_agent.engine import placement
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.placement import AUTO, Placement, place
from sandbox_agent.errors import WorkspaceError
from sandbox_agent.sandboxes.docker import create as create_sandbox
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.opening import create

pytestmark = pytest.mark.docker

ROOT = os.getuid() == 0


def simple(parent: Path, owner: int = UID) -> Path:
    """A folder with one file, owned by `owner`."""
    host = parent / "project"
    host.mkdir()
    (host / "a").write_text("a\n")
    give(host, owner)
    return host


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own state folder, new."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "sandbox-agent"


async def test_the_state_folder_may_have_any_name(tmp_path: Path) -> None:
    """Separators of mount options in the layers' own paths are no separators."""
    async with opened("overlay", simple(tmp_path), tmp_path / "s:t,a\\te, d" / "test-odd") as box:
        assert await box.bash("cat a; echo b > b; ls") == "a\na\nb"


async def test_the_folders_path_is_not_told(tmp_path: Path) -> None:
    """What is mounted where says nothing about where the person keeps the project."""
    async with opened("overlay", simple(tmp_path), tmp_path / "test-path") as box:
        assert "project" not in await box.bash("cat /proc/self/mountinfo")


async def test_the_mount_gives_no_rights(tmp_path: Path) -> None:
    """Set-id bits and devices in it mean nothing."""
    async with opened("overlay", simple(tmp_path), tmp_path / "test-flags") as box:
        options = await box.bash("grep ' /workspace ' /proc/self/mountinfo | cut -d' ' -f6")

    assert {"nosuid", "nodev"} <= set(options.split(","))


async def test_a_written_file_keeps_its_other_names(tmp_path: Path) -> None:
    """Those of the person's folder too, which the kernel would leave with the old content."""
    host = simple(tmp_path)
    (host / "d").mkdir()
    os.link(host / "a", host / "d" / "b")
    give(host, UID)
    async with opened("overlay", host, tmp_path / "test-names") as box:
        before = await box.sandbox.read_file("/workspace/a")
        await box.sandbox.replace_file("/workspace/a", b"new\n", expected_sha256=before.sha256)

        assert await box.bash("cat d/b; stat -c %h a d/b; ls -A . d") == "new\n2\n2\n.:\na\nd\n\nd:\nb"
    assert (host / "d" / "b").read_text() == "a\n"


OTHERS = [pytest.param(UID, id="user"), pytest.param(0, id="root")] if ROOT else []


@pytest.mark.parametrize("owner", OTHERS)
async def test_what_belongs_to_others_is_as_its_modes_say(owner: int, tmp_path: Path) -> None:
    """The person is told; the tools read what is readable for all, and change nothing of it in place."""
    host = simple(tmp_path, owner)
    for name, mode in (("open", 0o644), ("closed", 0o600)):
        (host / name).write_text(name)
        (host / name).chmod(mode)
        os.chown(host / name, 4321, 4321)

    async with opened("overlay", host, tmp_path / "test-others") as box:
        assert any("2 entries belong to somebody else" in note for note in box.workspace.notes)
        assert await box.bash("cat open; stat -c ' %u' open closed") == "open 4321\n 4321"
        assert (await box.try_bash("cat closed"))[0] == 1
        assert (await box.try_bash("echo x > open"))[0] == 1


async def test_a_start_that_is_cut_short_leaves_nothing(tmp_path: Path) -> None:
    """At whatever moment: container and volume are made in one step, and what was made is known."""
    host = simple(tmp_path)
    for number, cut_s in enumerate((0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)):
        folder = tmp_path / f"test-cut-{number}"
        workspace = create("overlay", host, folder)
        workspace.prepare()
        spec = SandboxSpec(
            workspace_source=workspace.mount,
            uid=workspace.owner.uid,
            gid=workspace.owner.gid,
            session_id=folder.name,
            state_dir=str(folder),
        )
        sandbox = create_sandbox(spec, endpoint())
        with anyio.move_on_after(cut_s):
            await sandbox.start()
        await sandbox.close()
        workspace.release()
        assert left_at_engine(folder.name) == []
        await discard(folder, endpoint())
    assert mounts_in(tmp_path) == []


async def test_auto_is_overlay_where_it_works(tmp_path: Path, state: Path) -> None:
    """It is tried once; what was found out serves the next runs, and the trial leaves nothing."""
    host = simple(tmp_path)

    first = await place(AUTO, host, endpoint(), "base")
    known = (state / placement.KNOWN_FILE).read_text()

    assert first == Placement("overlay")
    assert os.listdir(state) == [placement.KNOWN_FILE]
    assert await place(AUTO, host, endpoint(), "no/such:image") == first, "the second time nothing is started"
    assert (state / placement.KNOWN_FILE).read_text() == known


async def test_what_was_found_out_can_be_forgotten(tmp_path: Path, state: Path) -> None:
    """After a failed start the engine is tried again; what is known is believed until then."""
    host = simple(tmp_path)
    await place(AUTO, host, endpoint(), "base")
    known = json.loads((state / placement.KNOWN_FILE).read_text())
    for ability in known.values():
        ability["no_overlay"] = "it did not work"
    (state / placement.KNOWN_FILE).write_text(json.dumps(known))

    assert await place(AUTO, host, endpoint(), "base") == Placement("copy", why="it did not work")
    placement.forget()
    assert await place(AUTO, host, endpoint(), "base") == Placement("overlay")


@pytest.mark.parametrize("mode", ["overlay", "bind"])
async def test_a_mode_that_cannot_be_had_is_refused(mode: str, tmp_path: Path, state: Path) -> None:
    """An engine that sees no file of ours is known to: one line, and what to do."""
    host = simple(tmp_path)
    await place(AUTO, host, endpoint(), "base")
    known = json.loads((state / placement.KNOWN_FILE).read_text())
    for ability in known.values():
        ability |= {"no_overlay": "x", "sees_files": False}
    (state / placement.KNOWN_FILE).write_text(json.dumps(known))

    with pytest.raises(WorkspaceError, match=r"does not see this machine's files.*use --workspace-mode copy"):
        await place(mode, host, endpoint(), "base")
    assert (await place("copy", host, endpoint(), "base")).in_volume
