"""Signals: the container goes, the record is whole, the changes are kept."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from program import EDITS, WRITE, Program, bash, containers_of

from sandbox_agent.events import RunFinished, ToolFinished
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker

SLEEPER = {"text": "Now I wait.", "tools": [bash("sleep 300", timeout=400_000)]}


def start_sleeping(program: Program) -> subprocess.Popen[bytes]:
    """A run that has written a file and sits in a long command; returns once that has started."""
    script = program.script([WRITE, SLEEPER])
    process = program.start("run", "--output", "json", "-v", "--allow", "Bash", *EDITS, "--model", script, "x")
    assert process.stderr is not None
    seen = b""
    while b"* Bash" not in seen:
        line = process.stderr.readline()
        assert line, seen.decode()
        seen += line
    return process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, object]]:
    """Exit code and document."""
    out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    return process.returncode, json.loads(out)


@pytest.mark.parametrize(
    ("number", "code", "status"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_ends_the_run_within_5_s(program: Program, number: int, code: int, status: str) -> None:
    """One document, no container, a record that ends as a run ends, and the changes kept for `apply`."""
    process = start_sleeping(program)
    started = time.monotonic()
    process.send_signal(number)
    returned, document = ended(process)

    assert time.monotonic() - started < 5
    assert (returned, document["exit_code"], document["status"]) == (code, code, status)
    session = program.session()
    assert containers_of(session.name) == []
    tape = read_tape(session / "events.jsonl")
    events = [entry.event for entry in tape.entries]
    assert (tape.chain_ok, tape.damaged_lines) == (True, 0)
    assert isinstance([event for event in events if isinstance(event, ToolFinished)][-1], ToolFinished)
    assert any(isinstance(event, RunFinished) for event in events)
    assert program.call("apply", "last", "--all").code == 0
    assert (program.folder / "new.txt").read_text() == "new\n"
