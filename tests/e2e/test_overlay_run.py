"""Overlay runs of the installed command, for whoever runs the tests and for an ordinary user: end to end, killed, and
with nothing left afterwards.
"""

from __future__ import annotations

import grp
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from program import COMMAND, DONE, EDITS, Program, bash, containers_of

pytestmark = pytest.mark.docker

ORDINARY = 1234
OVERLAY = ("--workspace-mode", "overlay", *EDITS, "--allow", "Bash")


@dataclass(frozen=True)
class Ordinary(Program):
    """The same by a user without rights but the engine's socket; whoever runs the tests, if that is no root."""

    def environment(self, **changes: str | None) -> dict[str, str]:
        return super().environment(**{"HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **changes})

    def command(self) -> list[str]:
        if os.getuid() != 0:
            return COMMAND
        engine = grp.getgrgid(os.stat("/var/run/docker.sock").st_gid).gr_gid
        who = ["--reuid", str(ORDINARY), "--regid", str(ORDINARY), "--groups", str(engine)]
        # The interpreter may lie where only root can read; reading is the one thing this user may do everywhere.
        reads = [f"--{name}=-all,+dac_read_search" for name in ("inh-caps", "ambient-caps", "bounding-set")]
        return ["setpriv", *who, *reads, *COMMAND]


@pytest.fixture(params=["self", "ordinary"])
def somebody(request: pytest.FixtureRequest) -> Iterator[Program]:
    """Not in pytest's own folder, which is closed to others."""
    parent = Path(tempfile.mkdtemp(prefix="sandbox-agent-test-"))
    kind = Program if request.param == "self" else Ordinary
    program = kind.make(parent)
    (program.folder / "secret.pem").write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n")
    (program.folder / "d").mkdir()
    (program.folder / "d/f").write_text("f\n")
    if isinstance(program, Ordinary) and os.getuid() == 0:
        for path in (parent, *parent.rglob("*")):
            os.chown(path, ORDINARY, ORDINARY)
    yield program
    shutil.rmtree(parent)


def layers(program: Program) -> list[str]:
    """What is left of overlays in the state folder, and mounted there."""
    state = program.home / "state"
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounted = [line for line in file if str(state) in line]
    return [str(path) for path in state.rglob("overlay")] + mounted


WORK = "cat secret.pem; echo two >> a.txt; rm -r d; mkdir d; echo new > d/new; chmod 0 d/new; mkdir shut; chmod 0 shut"


def test_a_run_ends_with_the_changes_in_the_folder_and_nothing_else(somebody: Program) -> None:
    """Changed, deleted and replaced things arrive as the folder's owner's; no secret is read, no layer is left."""
    script = somebody.script([{"text": "x", "tools": [bash(WORK)]}, DONE])

    ended = somebody.call("run", "--output", "json", "--apply", "always", *OVERLAY, "--model", script, "x")

    assert ended.code == 0, ended.stderr
    assert (somebody.folder / "a.txt").read_text() == "one\ntwo\n"
    assert os.listdir(somebody.folder / "d") == ["new"]
    assert {path.stat().st_uid for path in somebody.folder.rglob("*")} == {somebody.folder.stat().st_uid}
    assert "hunter2" not in (somebody.session() / "events.jsonl").read_text()
    assert layers(somebody) == []


def test_changes_can_wait(somebody: Program) -> None:
    """Another process shows them and applies them later; then the layers go too."""
    script = somebody.script([{"text": "x", "tools": [bash(WORK)]}, DONE])
    ended = somebody.call("run", "--output", "json", "--apply", "never", *OVERLAY, "--model", script, "x")
    assert (somebody.folder / "a.txt").read_text() == "one\n"
    assert sorted(ended.document["unapplied_files"]) == ["a.txt", "d/f", "d/new", "shut"]

    shown = somebody.call("diff", "last", "--json")
    applied = somebody.call("apply", "last", "--all")

    assert sorted(json.loads(line)["path"] for line in shown.stdout.splitlines()) == ["a.txt", "d/f", "d/new", "shut"]
    assert applied.code == 0, applied.stderr
    assert (somebody.folder / "a.txt").read_text() == "one\ntwo\n"
    assert layers(somebody) == []


@pytest.mark.parametrize("work", [[], [{"text": "x", "tools": [bash(WORK)]}]], ids=["unchanged", "changed"])
def test_a_killed_run_leaves_only_its_work(somebody: Program, work: list[dict[str, Any]]) -> None:
    """reap removes container, volume and mount; the layers go when nothing is in them, and are kept when work is."""
    script = somebody.script([*work, {"text": "I wait.", "tools": [bash("sleep 300", timeout=400_000)]}])
    process = somebody.start("run", "--output", "json", "-v", *OVERLAY, "--model", script, "x")
    assert process.stderr is not None
    while b"* Bash sleep" not in (line := process.stderr.readline()):
        assert line, "it ended before the command began"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    session = somebody.session().name
    assert containers_of(session)

    ended = somebody.call("reap")

    assert ended.code == 0, ended.stderr
    assert containers_of(session) == []
    assert f"sandbox-agent-{session}" in ended.stdout
    if work:
        assert session in ended.stdout
        assert somebody.call("apply", "last", "--all").code == 0
        assert (somebody.folder / "a.txt").read_text() == "one\ntwo\n"
    assert layers(somebody) == []
