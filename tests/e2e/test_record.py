"""The record of real runs: what calls really did, a read-only command that was made to write, and the audit of it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from program import DONE, Program, bash, use

pytestmark = pytest.mark.docker

STATUS = bash("git status --short")


def plant(program: Program, command: str) -> None:
    """A repository that has git run a command of its own whenever somebody asks for the status."""
    git = ["git", "-C", str(program.folder), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    with (program.folder / ".git" / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "{command}"\n')


def ran(program: Program, *turns: dict[str, Any], mode: str = "acceptEdits") -> dict[str, Any]:
    """Play these turns headless; the document of the run."""
    arguments = ("run", "-p", "--output", "json", "--mode", mode, "--model", program.script([*turns, DONE]), "go")
    return program.call(*arguments).document


def effects(program: Program) -> list[dict[str, Any]]:
    """What the record says that each call did, in call order."""
    lines = (program.session() / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    order = [event["call_id"] for event in events if event["type"] == "tool_started"]
    found = [event for event in events if event["type"] == "call_effects"]
    assert sorted(order) == sorted(event["call_id"] for event in found)
    return sorted(found, key=lambda event: order.index(event["call_id"]))


def paths(effect: dict[str, Any]) -> list[str]:
    return [change["path"] for change in effect["changed"]]


def test_a_read_only_command_that_was_made_to_write_is_flagged(program: Program) -> None:
    """In the first turn, beside honest calls and before a writing one; to the person, in JSON, and in the audit."""
    plant(program, "touch /workspace/planted; false")
    reads = [STATUS, use("Read", file_path="/workspace/a.txt"), use("Write", file_path="/workspace/n", content="n\n")]
    document = ran(program, {"text": "I look.", "tools": reads})

    [found] = document["contradictions"]
    assert (found["tool_name"], found["kinds"], found["changed_files"]) == ("Bash", ["changed_files"], ["planted"])
    status, read, write = effects(program)
    assert (paths(status), paths(read), paths(write)) == (["planted"], [], ["n"])
    assert (status["shared_with"], status["exit_code"], read["read_only"]) == ([], 0, True)

    audit = program.call("sessions", "audit", "last", "--head", document["record_head"])
    assert audit.code == 0, audit.stdout
    assert "Bash `git status --short`: was to read only, and changed planted" in audit.stdout
    assert "is the head of this record" in audit.stdout


def test_a_rule_may_allow_what_writes_and_the_record_still_says_what_it_did(program: Program) -> None:
    """Two commands of one turn, each with its own changes, and a process left behind."""
    turn = {
        "text": "I build.",
        "tools": [
            bash("echo x > one; (sleep 300 &)"),
            bash("echo y > two; rm a.txt"),
            use("Write", file_path="/workspace/d/three", content="z\n"),
            use("Grep", pattern="nothing", path="/workspace"),
        ],
    }
    document = ran(program, turn, mode="bypassPermissions")

    first, second, write, grep = effects(program)
    assert (paths(first), paths(second), paths(write), paths(grep)) == (["one"], ["a.txt", "two"], ["d", "d/three"], [])
    assert (first["left_processes"], second["left_processes"]) == (1, 0)
    assert [found["kinds"] for found in document["contradictions"]] == [["left_processes"]]
    assert first["cpu_s"] > 0
    assert first["max_rss_bytes"] > 0


def test_what_the_person_changes_meanwhile_is_no_calls_doing(program: Program) -> None:
    """A reader that was at work then is not accused of it."""
    plant(program, "until grep -q mine /workspace/a.txt; do sleep 0.05; done; false")
    script = program.script([{"text": "I look.", "tools": [STATUS]}, DONE])
    process = program.start("run", "-p", "-v", "--output", "json", "--model", script, "go")
    assert process.stderr is not None
    while b"* Bash git status" not in (line := process.stderr.readline()):
        assert line
    (program.folder / "theirs.txt").write_text("mine\n")
    (program.folder / "a.txt").write_text("mine\n")
    out, _ = process.communicate(timeout=60)

    [status] = effects(program)
    assert (paths(status), json.loads(out)["contradictions"]) == ([], [])
    assert "a.txt" in {change["path"] for change in json.loads(out)["drifted_files"]}


def test_a_record_that_was_tampered_with_does_not_pass(program: Program) -> None:
    """One character of what a command printed."""
    ran(program, {"text": "I look.", "tools": [bash("cat a.txt")]})
    record = program.session() / "events.jsonl"
    record.write_text(record.read_text().replace('"content":"one', '"content":"two', 1))
    audit = program.call("sessions", "audit", "last", "--json")
    assert (audit.code, audit.document["chain"]["holds"]) == (1, False)
    assert audit.document["chain"]["breaks"][0]["line"] > 1
