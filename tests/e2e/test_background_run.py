"""`sandbox-agent run` with commands in the background: awaited, reported, reviewed, and ended with the run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from program import DONE, Program, containers_of, use

from sandbox_agent.events import JobFinished, UserMessage
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker


def behind(command: str, **fields: Any) -> dict[str, Any]:
    return use("Bash", command=command, run_in_background=True, **fields)


def test_a_run_waits_for_its_job_and_its_changes_are_reviewed(program: Program) -> None:
    """The model had nothing else to do; the end of the job was its next message, and what it made is applied."""
    model = program.script(
        [
            {"tools": [behind("until [ -e go ]; do sleep 0.1; done; echo made > made.txt; echo ended well")]},
            {"tools": [use("Read", file_path="a.txt")]},
            {"tools": [use("Write", file_path="go", content="go")]},
            {"text": "I wait."},
            DONE,
        ]
    )
    allowed = ("--mode", "bypassPermissions", "--apply", "always")
    ended = program.call("run", "--output", "stream-json", *allowed, "--model", model, "x")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    jobs = [line for line in lines if line.get("subtype") in ("task_started", "task_notification")]
    effects = {line["tool_name"]: line for line in lines if line.get("subtype") == "call_effects"}

    assert (ended.code, lines[-1]["result"], lines[-1]["contradictions"]) == (0, "All done.", [])
    assert [line["subtype"] for line in jobs] == ["task_started", "task_notification"]
    assert (jobs[1]["run_status"], jobs[1]["exit_code"], jobs[1]["task_id"]) == ("exited", 0, jobs[0]["task_id"])
    assert sorted(lines[-1]["applied_files"]) == ["go", "made.txt"]
    assert (program.folder / "made.txt").read_text() == "made\n"
    assert "made.txt" in [one["path"] for one in effects["Bash"]["changed"]]


def test_a_job_ends_with_the_run(program: Program) -> None:
    """At the limit of the run it is killed with the container, the record has its one end, and whoever goes on with the
    session is told that it runs no more."""
    model = program.script([{"tools": [behind("touch begun; sleep 1000")]}, {"text": "I wait."}, DONE])
    ended = program.call("run", "-p", "--mode", "bypassPermissions", "--timeout", "2", "--model", model, "x")
    record = read_tape(program.session() / "events.jsonl")
    ends = [entry.event for entry in record.entries if isinstance(entry.event, JobFinished)]

    assert ended.code == 4
    assert [(event.state, event.note) for event in ends] == [("closed", "the session ended")]
    assert "begun" in program.call("diff", "last").stdout
    assert containers_of(program.session().name) == []
    assert program.call("run", "-p", "-c", "--model", program.script([DONE]), "go on").code == 0
    later = [entry.event for entry in read_tape(program.session() / "events.jsonl").entries[len(record.entries) :]]
    said = [str(event.content) for event in later if isinstance(event, UserMessage)]
    assert len([text for text in said if f"{ends[0].job_id} (`touch begun; sleep 1000`)" in text]) == 1
