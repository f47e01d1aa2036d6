"""What a session may write is limited, in bytes and in files: it notices, goes on, and nothing is left mounted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ordinary import ordinary
from program import DONE, Program, bash

pytestmark = pytest.mark.docker

LIMIT = "version: 1\nname: small\nsandbox: {disk: 32MiB}\n"
FILL = "dd if=/dev/zero of=big bs=1M count=80 status=none"
FILES = 'mkdir many; python3 -c \'for i in range(9000): open(f"many/{i}", "w")\''
BYPASS = ("--mode", "bypassPermissions", "--apply", "never", "-v", "--output", "json")

OWN_DISK = os.getuid() == 0
"""Root gets a disk a session; for others the limit is watched, which the test of an ordinary user looks at."""


@pytest.fixture
def small(program: Program) -> Program:
    """With a policy of 32 MiB."""
    (program.folder.parent / "small.yaml").write_text(LIMIT)
    return program


def _options(program: Program, *turns: dict[str, Any], mode: str = "auto") -> list[str]:
    policy = str(program.folder.parent / "small.yaml")
    return ["run", *BYPASS, "--policy", policy, "--workspace-mode", mode, "--model", program.script(turns), "x"]


def _results(session: Path) -> list[str]:
    lines = (session / "events.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["type"] == "tool_finished"]
    return [event["content"] for event in events]


def _left(program: Program) -> list[str]:
    """Mounts and loop devices of this test's own state folder."""
    mine = str(program.home)
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if mine in line]
    files = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return mounts + [name for name in files if mine in name]


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_a_full_disk_is_told_with_its_figure_and_can_be_cleared(small: Program, mode: str) -> None:
    """Bytes and files run out inside the limit, the next call works, and with the session all of it goes."""
    clear = bash("rm -rf big many /workspace/many; echo room > /workspace/room && cat /workspace/room")
    turns = [{"text": str(n), "tools": [one]} for n, one in enumerate([bash(FILL), clear, bash(FILES), clear])]
    ended = small.call(*_options(small, *turns, DONE, mode=mode))
    assert ended.code == 0, ended.stderr
    filled, room, many, again = _results(small.session())
    for said in (filled, many):
        assert "sandbox.disk: 32 MiB" in said
    assert "room\n" in room
    assert "room\n" in again
    if OWN_DISK:
        assert "No space left on device" in filled
        assert (small.session() / "disk.img").stat().st_size < 100 * 2**20
    assert _left(small) == []
    shown = small.call("diff", "last", "--json")
    assert [json.loads(line)["path"] for line in shown.stdout.splitlines()] == ["room"]
    assert _left(small) == []
    assert small.call("sessions", "rm", "last", "--yes").code == 0
    assert _left(small) == []
    assert not list((small.home / "state/sandbox-agent/sessions").glob("*/disk.img"))


def test_a_killed_run_leaves_its_work_and_no_mount(small: Program) -> None:
    """reap gives back what was mounted; the changes are shown, the session goes on, and applied they are gone."""
    wait = {"text": "w", "tools": [bash("sleep 300", timeout=400_000)]}
    process = small.start(*_options(small, {"text": "1", "tools": [bash("echo kept > kept")]}, wait))
    assert process.stderr is not None
    while b"* Bash sleep" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGKILL)
    process.communicate()
    session = small.session().name
    assert small.call("reap").code == 0
    assert _left(small) == []
    on = {"text": "2", "tools": [bash("cat kept; echo more > more")]}
    policy, script = str(small.folder.parent / "small.yaml"), small.script([on, DONE])
    went_on = small.call("run", *BYPASS, "--policy", policy, "--resume", session, "--model", script, "x")
    assert went_on.code == 0, went_on.stderr
    assert "kept\n" in _results(small.session())[-1]
    assert small.call("apply", session, "--all").code == 0
    assert (small.folder / "kept").read_text() == "kept\n"
    assert _left(small) == []


def test_a_run_without_the_right_to_mount_is_watched_and_says_so() -> None:
    """An ordinary user's call that takes too much is stopped and told the figure; the next one can clear up."""
    with ordinary() as user:
        (user.folder.parent / "small.yaml").write_text(LIMIT)
        os.chmod(user.folder.parent / "small.yaml", 0o644)
        write = "head -c 2M /dev/zero > parts/$i"
        slow = f"mkdir parts; for i in $(seq 1 400); do {write}; sleep 0.02; done"
        clear = bash("rm -rf parts; echo room > room; cat room")
        script = user.script([{"text": "1", "tools": [bash(slow)]}, {"text": "2", "tools": [clear]}, DONE])
        where = ["-w", str(user.folder), "--model", script, "--policy", str(user.folder.parent / "small.yaml")]
        ended = user.call("run", *BYPASS, *where, "x")
    assert ended.code == 0, ended.stderr
    assert "sandbox.disk (32 MiB) is watched" in ended.stderr
    assert "sandbox.disk: 32 MiB) was passed" in ended.stderr
    assert "room" in ended.stderr


def test_a_bound_folder_has_no_limit_and_the_run_says_so(small: Program) -> None:
    """Nothing stands between the tools and the folder there."""
    if os.getuid() == 0:
        for path in (small.folder, *small.folder.iterdir()):
            os.chown(path, 1234, 1234)
    ended = small.call(*_options(small, DONE, mode="bind"))
    assert ended.code == 0, ended.stderr
    assert "does not hold for a folder that is bound" in ended.stderr


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that belongs to no root, and a state folder beside it."""
    parent = Path(tempfile.mkdtemp(prefix="sandbox-agent-test-"))
    (parent / "folder").mkdir()
    (parent / "state").mkdir()
    if os.getuid() == 0:
        os.chown(parent / "folder", 1234, 1234)
    yield parent
    shutil.rmtree(parent)


def test_root_without_the_right_to_mount_gets_a_workspace_without_a_disk(outside: Path) -> None:
    """As in a container of its own: the reason is kept for the warning, and no part of a disk is left."""
    program = (
        "import sys, pathlib; from sandbox_agent.workspaces.opening import create; "
        "made = create('copy', *map(pathlib.Path, sys.argv[1:]), disk_bytes=64 * 2**20, own_disk=True); "
        "print(made.no_disk)"
    )
    take = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"] if os.getuid() == 0 else []
    command = [*take, *Program.make(outside / "state").command()[:2], program]
    done = subprocess.run(
        [*command, str(outside / "folder"), str(outside / "state/session")], capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() not in (b"", b"None")
    assert sorted(path.name for path in (outside / "state/session").iterdir()) == ["workspace", "workspace.json"]
