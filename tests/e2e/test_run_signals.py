"""Signals: the container goes, the record is whole, the changes are kept."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from program import DONE, WRITE, Program, containers_of

from sandbox_agent.events import RunFinished, ToolFinished
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker


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
    process = program.sleeping(WRITE)
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_a_driven_session_opens_is_told_on_both_streams(
    program: Program, number: int, code: int
) -> None:
    """What was asked for has its result, and the exit code is the signal's."""
    streams = ("--input", "stream-json", "--output", "stream-json")
    run = ("run", "-p", *streams, "--model", program.script([DONE]), "-")
    process = program.start(*run, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    user = {"type": "user", "message": {"role": "user", "content": "x"}}
    begin = {"type": "control_request", "request_id": "r", "request": {"subtype": "initialize"}}
    process.stdin.write("".join(json.dumps(one) + "\n" for one in (user, begin)).encode())
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["type"] == "control_response"
    started = time.monotonic()
    process.send_signal(number)
    *_, result = [json.loads(line) for line in process.stdout]

    assert (process.wait(60), result["type"], result["is_error"]) == (code, "result", True)
    assert time.monotonic() - started < 5
    assert result["errors"] == [f"ended by {signal.Signals(number).name}"]
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
