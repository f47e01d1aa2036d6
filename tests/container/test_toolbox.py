"""An image with nothing in it at all gets bash, rg and python3 from a volume, and with them all a session needs."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import docker
import pytest
from checkpoint_rig import CheckpointRig, checkpointed
from sandbox_rig import UID, endpoint
from workspace_places import Place, give

from sandbox_agent.engine.discarding import discard
from sandbox_agent.sandboxes.docker import create as create_sandbox
from sandbox_agent.sandboxes.program import TOOLBOX
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.workspaces.opening import create

pytestmark = pytest.mark.docker

HIDE = f"import os; os.remove('{TOOLBOX}/.complete'); os.remove('{TOOLBOX}/bin/rg')"


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    """For what the tests do behind the sandbox's back."""
    made = docker.APIClient(base_url=endpoint().url, version="auto")
    yield made
    made.close()


@pytest.fixture(scope="module")
def empty_image(client: docker.APIClient) -> Iterator[str]:
    """An image with no file in it but one program of its own, which is no real one."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in ("etc", "usr", "usr/bin"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        text = f"#!{TOOLBOX}/bin/sh\necho the image\n".encode()
        program = tarfile.TarInfo("usr/bin/head")
        program.mode, program.size = 0o755, len(text)
        archive.addfile(program, io.BytesIO(text))
    name = f"sandbox-agent-test/empty:{secrets.token_hex(6)}"
    client.import_image_from_data(data.getvalue(), repository=name.partition(":")[0], tag=name.partition(":")[2])
    yield name
    client.remove_image(name, force=True)


@pytest.fixture(scope="module")
async def rig(empty_image: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckpointRig]:
    """A session on an overlay, in that image, with checkpoints."""
    parent = tmp_path_factory.mktemp("toolbox")
    host, state = parent / "project", parent / f"test-{secrets.token_hex(6)}"
    host.mkdir()
    (host / "a.txt").write_text("one\n")
    give(host, UID)
    workspace = create("overlay", host, state)
    sandbox = create_sandbox(spec(empty_image, workspace.mount, state), endpoint())
    try:
        await anyio.to_thread.run_sync(workspace.prepare)
        info = await sandbox.start()
        assert info.details["transport"].endswith(f"{TOOLBOX}/bin/python3")
        place = Place(workspace, sandbox, state, None)  # type: ignore[arg-type]
        async with checkpointed(place) as made:
            yield made
    finally:
        await sandbox.close()
        workspace.release()
        await discard(state, endpoint())


def spec(image: str, source: Any, state: Path) -> SandboxSpec:
    return SandboxSpec(
        workspace_source=source, uid=UID, gid=UID, session_id=state.name, state_dir=str(state), image=image
    )


async def test_the_programs_run_beside_no_c_library(rig: CheckpointRig) -> None:
    """Each of the three, with the locale of a sandbox, and Python with what needs libraries of its own."""
    imports = 'import ssl, sqlite3, ctypes, hashlib, sys; print(sys.prefix, "ü")'
    said = await rig.place.bash(f"rg -n one a.txt; python3 -c '{imports}'; sh -c 'echo $0'")

    assert said.splitlines() == ["1:one", f"{TOOLBOX} ü", "sh"]


async def test_what_the_image_has_comes_first(rig: CheckpointRig) -> None:
    """The toolbox is last in PATH."""
    assert await rig.place.bash("head a.txt; cat a.txt") == "the image\none"


async def test_nobody_inside_can_change_it_or_look_into_the_runner(rig: CheckpointRig) -> None:
    """Read-only, and the interpreter cannot be read."""
    code, said = await rig.place.try_bash(f"echo x > {TOOLBOX}/bin/rg; cat {TOOLBOX}/bin/python3")

    assert code == 1
    assert ("Read-only file system" in said, "Permission denied" in said) == (True, True)


async def test_undo_works_there(rig: CheckpointRig) -> None:
    """Checkpoints need a Python, and have one."""
    before = await rig.tree()
    assert await rig.change("echo two > b.txt; mkdir d; ln -s a.txt l; chmod 700 b.txt") is not None
    await rig.checkpoints.undo(0)

    assert await rig.tree() == before


async def test_a_toolbox_that_was_not_finished_is(
    client: docker.APIClient, empty_image: str, rig: CheckpointRig, tmp_path: Path
) -> None:
    """Whoever fills it may be killed: the next session finishes it."""
    volume = next(
        mount["Name"]
        for mount in client.inspect_container(f"sandbox-agent-{rig.place.state.name}")["Mounts"]
        if mount["Destination"] == TOOLBOX
    )
    made = client.create_container(
        "sandbox-agent/base:latest",
        ["python3", "-c", HIDE],
        host_config=client.create_host_config(binds=[f"{volume}:{TOOLBOX}"], network_mode="none"),
    )
    client.start(made)
    assert client.wait(made)["StatusCode"] == 0
    client.remove_container(made)
    folder, state = tmp_path / "workspace", tmp_path / f"test-{secrets.token_hex(6)}"
    folder.mkdir()
    state.mkdir()
    sandbox = create_sandbox(spec(empty_image, str(folder), state), endpoint())
    try:
        assert (await sandbox.start()).transport == "runner"
        assert (await sandbox.exec(["rg", "--version"])).exit_code == 0
    finally:
        await sandbox.close()


async def test_what_runs_apart_finds_it_too(rig: CheckpointRig) -> None:
    """Hooks are another user's programs, with an environment of their own."""
    ended = await rig.place.sandbox.exec_apart(["bash", "-c", "rg --version | head -n 1; echo $PATH"], timeout_s=20)

    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.split()[-1].endswith(f":{TOOLBOX}/bin".encode())
