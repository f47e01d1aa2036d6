"""A run that is killed at any moment, recorded or not: its record can be read, it goes on, nothing is done twice."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest
from program import DONE, Program, bash, use

pytestmark = pytest.mark.docker

STEPS = 8
LAST_LINE = 84
"""About as many lines a verbose run of these steps prints, until its changes are in the folder."""


def killed_after(program: Program, lines: int, *options: str) -> None:
    """Run the steps, and kill the process when it has printed so many lines."""
    steps = []
    for number in range(STEPS):
        tools = [bash(f"echo {number} >> n.txt"), use("Write", file_path=f"/workspace/f{number}", content="x\n")]
        steps.append({"text": f"Step {number}.", "tools": tools})
    arguments = ("run", "--mode", "bypassPermissions", "--apply", "always", "-v", *options)
    process = program.start(*arguments, "--model", program.script([*steps, DONE]), "go", stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    for _ in range(lines):
        if not process.stderr.readline():
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


def goes_on(program: Program) -> None:
    """Everything that takes a session takes this one; what it did is in the folder once, with one warning at most."""
    sessions = list((program.home / "state/sandbox-agent/sessions").glob("*/events.jsonl"))
    if not sessions:
        return
    session_id = sessions[0].parent.name
    for command in (("show", session_id), ("audit", session_id), ("export", session_id, "-", "--format", "json")):
        shown = program.call("sessions", *command)
        assert shown.code == 0, shown.stderr
    script = program.script([{"tools": [bash("cat n.txt")]}, DONE])
    options = ("-p", "--mode", "bypassPermissions", "--apply", "always", "--model", script)
    ended = program.call("resume", session_id, "go on", *options)
    assert ended.code == 0, ended.stderr
    assert sum(line.startswith("! ") for line in ended.stderr.splitlines()) <= 1, ended.stderr
    counted = (program.folder / "n.txt").read_text().split() if (program.folder / "n.txt").exists() else []
    assert counted == [str(number) for number in range(len(counted))]
    assert program.call("sessions", "audit", session_id).code == 0


@pytest.mark.parametrize("lines", [30])
def test_a_recorded_run_that_is_killed_goes_on(program: Program, tmp_path: Path, lines: int) -> None:
    """Its bundle says that it is not finished; see the soak test for all other moments."""
    file = tmp_path / "run.bundle"
    killed_after(program, lines, "--record", str(file))
    replayed = program.call("replay", str(file), "--frozen")
    assert (replayed.code, "was not finished" in replayed.stderr) == (2, True)
    goes_on(program)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_run_that_is_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    """Thirty moments, half of them of recorded runs."""
    moments = random.Random()
    for number in range(30):
        parent = tmp_path / str(number)
        parent.mkdir()
        program, file = Program.make(parent), parent / "run.bundle"
        killed_after(program, moments.randrange(LAST_LINE), *(("--record", str(file)) if number % 2 else ()))
        if file.exists():
            assert program.call("replay", str(file), "--frozen").code in (0, 2)
        goes_on(program)
        program.call("reap")
