"""`sandbox-agent run` without a person: outputs, exit codes, what reaches the folder."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from program import DONE, EDITS, WRITE, Program, bash, containers_of, use

pytestmark = pytest.mark.docker


def test_text_is_the_answer_alone_and_the_folder_stays_untouched(program: Program) -> None:
    """-p asks nobody and applies nothing; stderr says where the changes are."""
    ended = program.call("run", "-p", *EDITS, "--model", program.script([WRITE, DONE]), "make a file")

    assert (ended.code, ended.stdout) == (0, "All done.\n")
    assert f"sandbox-agent apply {program.session().name}" in ended.stderr
    assert sorted(os.listdir(program.folder)) == ["a.txt"]
    assert containers_of(program.session().name) == []


def test_stream_json_is_one_object_a_line_with_the_result_last(program: Program) -> None:
    """Every line parses; calls and results are paired."""
    ended = program.call("run", "--output", "stream-json", *EDITS, "--model", program.script([WRITE, DONE]), "x")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    blocks = [line["message"]["content"][0] for line in lines if line["type"] in ("assistant", "user")]

    assert ended.code == 0
    assert (lines[0]["type"], lines[0]["subtype"]) == ("system", "init")
    assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_result", "text"]
    assert blocks[1]["id"] == blocks[2]["tool_use_id"]
    assert (lines[-1]["type"], lines[-1]["subtype"], lines[-1]["result"]) == ("result", "success", "All done.")
    assert {line["session_id"] for line in lines} == {program.session().name}


def test_apply_always_brings_the_changes_to_the_folder(program: Program) -> None:
    """And nothing of the copy is kept."""
    ended = program.call(
        "run", "--output", "json", "--apply", "always", *EDITS, "--model", program.script([WRITE, DONE]), "x"
    )

    assert (ended.code, ended.document["applied_files"], ended.document["unapplied_files"]) == (0, ["new.txt"], [])
    assert (program.folder / "new.txt").read_text() == "new\n"


def test_kept_changes_are_shown_and_applied_later(program: Program) -> None:
    """`diff last`, `apply last PATH` and then nothing is left."""
    program.call("run", "-p", *EDITS, "--model", program.script([WRITE, DONE]), "x")

    assert "+new\n" in program.call("diff", "last").stdout
    assert program.call("apply", "last", "nothing").code == 2
    assert program.call("apply", "last").code == 2
    applied = program.call("apply", "last", "new.txt")
    assert (applied.code, applied.stdout) == (0, f"Applied 1 path to {program.folder}.\n")
    assert (program.folder / "new.txt").read_text() == "new\n"


def test_a_folder_that_changed_meanwhile_is_a_conflict_and_not_overwritten(program: Program) -> None:
    """The file of that name that appeared in the folder stays as it is."""
    program.call("run", "-p", *EDITS, "--model", program.script([WRITE, DONE]), "x")
    (program.folder / "new.txt").write_text("mine\n")
    applied = program.call("apply", "last", "--all")

    assert applied.code == 1
    assert "Not applied: new.txt" in applied.stdout
    assert (program.folder / "new.txt").read_text() == "mine\n"


@pytest.mark.parametrize("options", [("--mode", "dontAsk"), (), ("--deny", "Edit"), ("--policy", "readonly")])
@pytest.mark.parametrize(
    ("call", "summary"),
    [
        (use("Write", file_path="probe.txt", content="x"), ("file_path", "probe.txt")),
        (bash("touch probe.txt"), ("command", "touch probe.txt")),
    ],
)
def test_dev_37_a_denied_call_is_reported_with_its_own_exit_code(
    program: Program, options: tuple[str, ...], call: dict[str, Any], summary: tuple[str, str]
) -> None:
    """Never asks, runs nothing, names the tool, its input and the reason, and is no success."""
    script = program.script([{"text": "I try.", "tools": [call]}, {"text": "I could not."}])
    began_s = time.monotonic()
    ended = program.call("run", "--output", "json", "--workspace-mode", "copy", *options, "--model", script, "x")
    assert time.monotonic() - began_s < 15
    document = ended.document
    assert (ended.code, document["exit_code"]) == (3, 3)
    assert (document["status"], document["result"]) == ("denied", "I could not.")
    [denial] = document["permission_denials"]
    assert (denial["tool_name"], denial["tool_input"][summary[0]]) == (call["name"], summary[1])
    assert denial["reason"]
    assert document["unapplied_files"] == []
    assert not (program.folder / "probe.txt").exists()


def test_a_limit_ends_softly_with_its_own_exit_code(program: Program) -> None:
    """What was done until then is kept and listed."""
    ended = program.call(
        "run", "--output", "json", *EDITS, "--max-turns", "1", "--model", program.script([WRITE, DONE]), "x"
    )
    document = ended.document

    assert (ended.code, document["subtype"], document["unapplied_files"]) == (4, "error_max_turns", ["new.txt"])
    assert document["error"] == "the limit turns = 1 was reached"


def test_a_model_that_fails_ends_with_its_own_exit_code(program: Program) -> None:
    """The document has what the API said, stderr the same line, and always-apply keeps the half-done work."""
    script = program.script([WRITE, {"error": {"message": "bad request", "kind": "invalid_request_error"}}])
    ended = program.call("run", "--output", "json", "--apply", "always", *EDITS, "--model", script, "x")

    assert (ended.code, ended.document["status"]) == (6, "model_error")
    assert "bad request" in ended.document["error"]
    assert "bad request" in ended.stderr
    assert sorted(os.listdir(program.folder)) == ["a.txt"]


def test_a_missing_key_is_one_line_before_anything_starts(program: Program) -> None:
    """Not even the engine is asked: the one named here does not exist."""
    ended = program.call("run", "-p", "x", DOCKER_HOST="unix:///nonexistent.sock")

    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("sandbox-agent: no API key: set ANTHROPIC_API_KEY")
    assert ended.stderr.count("\n") == 1


def test_a_missing_engine_is_one_line_and_still_a_document(program: Program) -> None:
    """Exit code 5, the endpoint named, nothing run."""
    ended = program.call(
        "run", "--output", "json", "--model", program.script([DONE]), "x", DOCKER_HOST="unix:///nonexistent.sock"
    )

    assert (ended.code, ended.document["exit_code"], ended.document["status"]) == (5, 5, "sandbox_error")
    assert "/nonexistent.sock" in ended.document["error"]
    assert ended.stderr == f"sandbox-agent: {ended.document['error']}\n"


def test_the_task_may_come_through_standard_input(program: Program) -> None:
    """`-` reads it to its end."""
    process = program.start("run", "-p", "--model", program.script([{"text": "Done: {{task}}"}]), "-", stdin=-1)
    out, _ = process.communicate(b"say it\n", timeout=60)

    assert (process.returncode, out) == (0, b"Done: say it\n")


@pytest.mark.parametrize("_", range(4))
def test_a_reader_that_goes_away_ends_the_run_quietly(program: Program, _: int) -> None:
    """No trace, no container or mount left, the exit code of a broken pipe. It falls into the start at another place
    each time."""
    script = program.script([{"text": "x", "tools": [use("TodoWrite", todos=[])]}] * 50 + [DONE])
    process = program.start("run", "--output", "stream-json", "--model", script, "x")
    assert process.stdout is not None
    assert process.stderr is not None
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    stderr = process.stderr.read().decode()
    process.stderr.close()

    assert process.wait(60) == 141
    assert "Traceback" not in stderr
    assert "BrokenPipe" not in stderr
    assert containers_of(first["session_id"]) == []
    assert str(program.home) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize("output", ["json", "stream-json"])
def test_no_room_for_the_document_is_no_trace(program: Program, output: str) -> None:
    """What was wrong keeps its exit code, and there is a line for each of the two faults."""
    with open("/dev/full", "w") as full:
        run = program.start("run", "--output", output, "--model", "script:none.yaml", "x", stdout=full)
        _, said = run.communicate(timeout=60)

    assert run.returncode == 2
    first, second = said.decode().splitlines()
    assert "cannot read the model script" in first
    assert second == "sandbox-agent: stdout cannot be written: No space left on device"


def test_in_a_pipe_people_get_plain_text_and_the_answer_on_stdout(program: Program) -> None:
    """Without -p too: no escape sequences, nobody asked, and it says how to apply."""
    ended = program.call("run", *EDITS, "--model", program.script([WRITE, DONE]), "x")

    assert (ended.code, ended.stdout) == (0, "All done.\n")
    assert "\x1b" not in ended.stderr
    assert "+new" in ended.stderr
    assert "Nobody is there to ask what to apply" in ended.stderr
    assert sorted(os.listdir(program.folder)) == ["a.txt"]


def test_sessions_are_listed_with_task_and_status(program: Program) -> None:
    """Newest first, as lines for people or JSON."""
    program.call("run", "-p", "--model", program.script([DONE]), "first task")
    listed = program.call("sessions", "list", "--json")
    row = json.loads(listed.stdout)

    assert (row["session_id"], row["task"], row["status"]) == (program.session().name, "first task", "done")


def test_the_demo_fixes_its_project_and_says_so(program: Program) -> None:
    """The main job: tests fail, are fixed in the container, pass, and the fix is in the kept folder."""
    kept = program.folder.parent / "kept"
    done = program.call("demo", "--keep", str(kept))

    assert done.code == 0, done.stderr
    assert "Tests in the container: 4 failed, 8 passed -> 12 passed" in done.stderr
    assert "-        if weight_kg < band.limit_kg:" in done.stderr
    assert "if weight_kg <= band.limit_kg" in (kept / "parcels" / "tariff.py").read_text()
