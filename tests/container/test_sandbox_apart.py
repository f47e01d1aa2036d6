"""Programs beside the tools: another user, nothing in their environment, and out of the tools' reach."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from sandbox_rig import UID, Rig, rig

from sandbox_agent.sandboxes.spec import APART_UID, SandboxSpec

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", params=["auto", "exec"])
async def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """One sandbox for all, once with the runner and once without."""
    async with rig(tmp_path_factory.mktemp("apart"), transport=request.param) as made:
        yield made


async def test_it_is_another_user_with_the_input_and_nothing_else(box: Rig) -> None:
    """The folder is the workspace, stdin is what was given, and the environment holds three words."""
    done = await box.sandbox.exec_apart(["sh", "-c", "id -u; pwd; cat; env | cut -d= -f1 | sort"], stdin=b"given\n")

    uid, folder, given, *names = done.stdout.decode().split()
    assert (int(uid), folder, given) == (APART_UID, "/workspace", "given")
    assert set(names) - {"PWD", "SANDBOX_AGENT_CALL"} == {"HOME", "LANG", "PATH"}


async def test_the_tools_cannot_kill_it(box: Rig) -> None:
    """A signal to everything passes it by."""
    async with anyio.create_task_group() as group:
        results = []

        async def apart() -> None:
            script = "touch /tmp/begun; until [ -e /tmp/over ]; do sleep 0.02; done; echo alive"
            results.append(await box.sandbox.exec_apart(["sh", "-c", script], timeout_s=30))

        group.start_soon(apart)
        await box.sandbox.exec(["sh", "-c", "until [ -e /tmp/begun ]; do sleep 0.02; done"], timeout_s=30)
        await box.outside(["sh", "-c", "kill -9 -1"])
        await box.outside(["touch", "/tmp/over"])

    assert [result.stdout for result in results] == [b"alive\n"]


async def test_nothing_of_it_is_left(box: Rig) -> None:
    """What it started in the background ends with it, and a time limit ends all."""
    await box.sandbox.exec_apart(["sh", "-c", "(setsid sleep 4321 &) ; exit 0"])
    late = await box.sandbox.exec_apart(["sh", "-c", "sleep 4321 & wait"], timeout_s=0.2)

    assert late.timed_out
    seen = await box.sandbox.exec(["ps", "axo", "args"])
    assert b"sleep 4321" not in seen.stdout


async def test_a_workspace_it_may_not_enter_is_no_fault(box: Rig) -> None:
    """It starts in / then."""
    os.chmod(box.workspace, 0o700)
    try:
        done = await box.sandbox.exec_apart(["pwd"])
    finally:
        os.chmod(box.workspace, 0o755)

    assert (done.exit_code, done.stdout) == (0, b"/\n")


def test_the_tools_are_never_that_user(tmp_path: Path) -> None:
    """A workspace that belongs to the uid is refused."""
    with pytest.raises(ValueError, match="the container's own"):
        SandboxSpec(str(tmp_path), APART_UID, UID, "s", None)
