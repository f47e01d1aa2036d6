"""Our process is killed in the middle of a checkpoint or an undo: nothing earlier is lost, and the next one goes on."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest
from checkpoint_rig import OWNER, Tree, resumed
from sandbox_rig import endpoint
from workspace_places import give

from sandbox_agent.engine.discarding import discard

pytestmark = pytest.mark.docker

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import anyio
from checkpoint_rig import checkpointed
from workspace_places import running
from sandbox_agent.workspaces.opening import create

def hook_for(state, moment):
    seen = []  # an audit hook cannot be taken away, so it is made where it is wanted

    def hook(event, arguments):
        if event not in ("open", "os.rename", "os.remove") or isinstance(arguments[0], int):
            return
        path = os.fsdecode(arguments[event == "os.rename"])
        if not path.startswith(state):
            return
        if event == "open":
            event = "write" if arguments[2] & (os.O_WRONLY | os.O_RDWR) else "read"
        kind = {"step": "step", "json": "marker"}.get(path.rpartition(".")[2], "other")
        seen.append((event, kind))
        now = {
            "contents": event == "write" and kind == "other",
            "step": (event, kind) == ("os.rename", "step"),
            "marker": (event, kind) == ("os.rename", "marker"),
            "putting": event == "read" and ("os.rename", "marker") in seen,
            "undone": seen.count(("os.rename", "step")) == 2,
            "end": (event, kind) == ("os.remove", "marker"),
        }
        if now[moment]:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook

async def main(host, state, what, moment):
    workspace = create("copy", Path(host), Path(state))
    async with running(workspace, Path(state)) as place, checkpointed(place) as rig:
        await rig.change("for i in $(seq 300); do echo $i > new$i; done; rm -r src; chmod 700 readme")
        print(json.dumps(await rig.tree()), flush=True)
        await place.bash("for i in $(seq 300); do echo more >> new$i; done; mkdir later; echo x > later/x; rm readme")
        print("now", flush=True)
        if moment:
            sys.addaudithook(hook_for(state, moment))
        if what == "checkpoint":
            await rig.take()
        else:
            await rig.checkpoints.undo(0)
        print("done", flush=True)
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""

END_S = 60.0


def folder(parent: Path) -> Path:
    host = parent / "project"
    (host / "src").mkdir(parents=True)
    for number in range(200):
        (host / "src" / f"f{number}").write_text(f"{number}\n" * 50)
    (host / "readme").write_text("one\n")
    give(host, OWNER)
    return host


def killed(host: Path, state: Path, what: str, when: str | float) -> tuple[Tree, bool]:
    """Run the program; at a named moment it is killed by itself, else so long after it began.

    Returns the tree before, and whether it was done by then.
    """
    moment, after_s = (when, END_S) if isinstance(when, str) else ("", when)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.getcwd()])}
    command = [sys.executable, "-c", PROGRAM, str(host), str(state), what, moment]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        tree: Tree = json.loads(process.stdout.readline())
        assert process.stdout.readline() == "now\n"
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        done = "done" in process.stdout.read()
        assert not (moment and done), f"there was no moment {moment}"
        return tree, done


async def check(parent: Path, what: str, when: str | float) -> None:
    """Kill, take up again, and look whether anything is lost."""
    host, state = folder(parent), parent / f"test-{secrets.token_hex(6)}"
    before, done = await anyio.to_thread.run_sync(killed, host, state, what, when)
    try:
        async with resumed(state) as rig:
            steps = rig.checkpoints.steps
            latest = [number for number in steps.numbers() if "later/x" in steps.load(number).snapshot.nodes]
            assert latest, "what stood when it was killed is a step"
            assert steps.restoring() is None
            if what == "undo" and (done or any("interrupted" in text for text in rig.warnings)):
                assert "src/f7" in steps.load(steps.numbers()[-1]).snapshot.nodes, "the undo was done to its end"
            await rig.checkpoints.undo(1)
            assert await rig.tree() == before
            await rig.checkpoints.undo(latest[-1])
            assert await rig.place.bash("cat later/x; tail -1 new300; ls -d src readme 2>&1 | wc -l") == "x\nmore\n2"
            assert not list(steps.folder.rglob("part-*")) + list(steps.folder.rglob("*.part"))
    finally:
        await discard(state, endpoint())


@pytest.mark.parametrize(
    ("what", "moment"),
    [
        ("checkpoint", "contents"),
        ("checkpoint", "step"),
        ("undo", "step"),
        ("undo", "marker"),
        ("undo", "putting"),
        ("undo", "undone"),
        ("undo", "end"),
    ],
)
async def test_a_killed_process_loses_nothing(tmp_path: Path, what: str, moment: str) -> None:
    """Just before a content is written, a step has its name, the undo is noted, the first content is read for it, its
    own step has its name, and the note is removed.
    """
    await check(tmp_path, what, moment)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["checkpoint", "undo"])
@pytest.mark.parametrize("after_ms", range(0, 400, 10))
async def test_a_process_killed_at_any_moment_loses_nothing(tmp_path: Path, what: str, after_ms: int) -> None:
    """At many moments."""
    await check(tmp_path, what, after_ms / 1000)
