"""What a dead owner left behind is removed, by `reap` and at every start; what is in use stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_rig import Rig, endpoint, rig

from sandbox_agent.sandboxes.owner import LABEL_SESSION
from sandbox_agent.sandboxes.reap import reap, remove_all

pytestmark = pytest.mark.docker

ORPHAN = """
import sys
from pathlib import Path
import anyio
sys.path.insert(0, sys.argv[1])
from sandbox_rig import rig

async def main():
    async with rig(Path(sys.argv[2])) as made:
        print(made.sandbox.spec.session_id, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def orphan(folder: Path) -> str:
    """The session of a sandbox whose process was killed with no chance to clean up."""
    argv = [sys.executable, "-c", ORPHAN, str(Path(__file__).parent), str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        session = process.stdout.readline().strip()
        process.kill()
    return session


def left(box: Rig, session: str) -> list[str]:
    """Ids of what carries the session's label."""
    return [found["Id"] for found in box.client.containers(all=True, filters={"label": f"{LABEL_SESSION}={session}"})]


async def test_reap_removes_what_a_killed_owner_left(tmp_path: Path) -> None:
    """And says so; the living one's container stays and works."""
    (tmp_path / "dead").mkdir()
    async with rig(tmp_path) as box:
        session = orphan(tmp_path / "dead")
        assert len(left(box, session)) == 1
        removed = await reap(endpoint())

        assert f"container sandbox-agent-{session}" in removed
        assert f"container sandbox-agent-{box.sandbox.spec.session_id}" not in removed
        assert left(box, session) == []
        assert (await box.sandbox.exec(["echo", "alive"])).stdout == b"alive\n"


async def test_a_start_removes_it_too(tmp_path: Path) -> None:
    """Nobody has to remember to reap."""
    (tmp_path / "dead").mkdir()
    session = orphan(tmp_path / "dead")
    async with rig(tmp_path) as box:
        assert left(box, session) == []


async def test_a_session_can_be_removed_whole(tmp_path: Path) -> None:
    """By its name, though its owner lives."""
    async with rig(tmp_path) as box:
        session = box.sandbox.spec.session_id
        removed = await remove_all(endpoint(), session)

        assert removed == [f"container sandbox-agent-{session}"]
        assert left(box, session) == []


async def test_what_a_killed_owner_ran_ends_with_it(tmp_path: Path) -> None:
    """The runner sees the end of its stream and takes every process of the tools with it, before anybody reaps."""
    (tmp_path / "dead").mkdir()
    async with rig(tmp_path) as box:
        session = orphan(tmp_path / "dead")
        container = left(box, session)[0]
        top = box.client.top(container, "-eo pid,args")["Processes"]
        # A process that is just ending has no arguments any more, and shows its name in brackets.
        while any("python3" in row[1] or "sandbox-runner" in row[1] for row in top):
            top = box.client.top(container, "-eo pid,args")["Processes"]
        await remove_all(endpoint(), session)

    assert [row[1].split()[0] for row in top] == ["/sbin/docker-init", "sleep"]
