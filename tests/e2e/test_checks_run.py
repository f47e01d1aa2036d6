"""Acceptance checks of the installed command: a clean container on the result, which decides."""

from __future__ import annotations

import os

import pytest
from program import DONE, Program, bash

pytestmark = pytest.mark.docker

CHEAT = (
    "echo pass > tests/run.sh; echo x > tests/added; rm tests/gone; echo two > a.txt; touch /tmp/planted ~/planted; "
    "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0\\n' > ~/bin/sh; export GIVEN=1; sleep 100 &"
)
CLEAN = (
    'test -z "$(ls -A /tmp; ls -A ~)" && test -z "$GIVEN" && cat a.txt tests/* && echo dirt > dirt && echo dirt > a.txt'
)
OF_GIT = (
    "git init -q /tmp/r && cd /tmp/r && git config core.fsmonitor 'touch /tmp/ran; false' && git status >/dev/null && "
    "test ! -e /tmp/ran && cd /workspace"
)
BEFORE = 'test "$(ls tests)" = "$(printf "gone\\nrun.sh")" && sh tests/run.sh && test ! -e dirt && cat a.txt'


@pytest.fixture
def project(program: Program) -> Program:
    tests = program.folder / "tests"
    tests.mkdir()
    (tests / "run.sh").write_text("grep -qx two a.txt\n")
    (tests / "gone").write_text("gone\n")
    return program


def test_each_check_has_a_clean_container_on_the_result(project: Program) -> None:
    """Nothing of the agent is there but its tree, nor of another check; all pass, so the result is applied."""
    script = project.script([{"text": "Now.", "tools": [bash(CHEAT)]}, DONE])
    checks = ("--check", CLEAN, "--check", f"{OF_GIT} && test ! -e dirt && cat a.txt")
    ended = project.call("run", "--output", "json", "--apply", "always", "--mode", "bypassPermissions",
                         "--model", script, *checks, "x")  # fmt: skip

    found = [(one["exit_code"], one["output"]) for one in ended.document["checks"]]
    assert found == [(0, "two\nx\npass\n"), (0, "two\n")], ended.stderr
    assert (ended.code, ended.document["status"]) == (0, "done")
    assert "tests/run.sh" in ended.document["applied_files"]
    assert not (project.folder / "dirt").exists()
    assert (project.folder / "a.txt").read_text() == "two\n"
    assert list((project.home / "state/sandbox-agent").glob("trial-*")) == []


@pytest.mark.parametrize("mode", ["copy", "bind"])
def test_files_from_before_and_a_check_that_fails(project: Program, mode: str) -> None:
    """With its own files as they were the check is the person's; one that fails, and one that hangs, fail the run."""
    if mode == "bind" and os.getuid() == 0:
        for path in (project.folder, *project.folder.rglob("*")):
            os.chown(path, 1000, 1000)
    script = project.script([{"text": "Now.", "tools": [bash(CHEAT)]}, DONE])
    checks = ("--check", BEFORE, "--check-files", "tests/**", "--check", "sleep 50 & sleep 50", "--check", "exit 3")
    ended = project.call("run", "--output", "json", "--apply", "always", "--mode", "bypassPermissions",
                         "--workspace-mode", mode, "--model", script, *checks, "--check-timeout", "2", "x")  # fmt: skip

    found = [(one["exit_code"], one["timed_out"]) for one in ended.document["checks"]]
    assert found == [(0, False), (None, True), (3, False)], ended.document["checks"]
    assert ended.document["checks"][0]["from_base"] == ["tests/added", "tests/gone", "tests/run.sh"]
    assert (ended.code, ended.document["status"], ended.document["subtype"]) == (1, "failed", "error_during_execution")
    assert "'exit 3' failed with exit code 3" in ended.document["error"]
    there = (project.folder / "a.txt").read_text()
    assert (there, bool(ended.document["unapplied_files"])) == (("two\n", False) if mode == "bind" else ("one\n", True))


def test_a_run_that_calls_no_tool_is_checked(program: Program) -> None:
    """The tree is then the folder as it is."""
    ended = program.call("run", "-p", "--model", program.script([DONE]), "--check", "grep -qx one a.txt", "x")

    assert (ended.code, ended.stdout) == (0, "All done.\n"), ended.stderr
    assert "check grep -qx one a.txt: passed" in ended.stderr


def test_a_task_is_repeated_from_the_same_tree(project: Program) -> None:
    """Three sessions, two at a time: nothing is applied, the step where they part is named, and a check counts."""
    flaky = "rm tests/gone; sha256sum /proc/sys/kernel/random/uuid"
    script = project.script([{"text": "Now.", "tools": [bash("ls tests")]}, {"tools": [bash(flaky)]}, DONE])
    ended = project.call("run", "--repeat", "3", "--jobs", "2", "--output", "json", "--mode", "bypassPermissions",
                         "--model", script, "--check", "test ! -e tests/gone", "x")  # fmt: skip
    document = ended.document

    assert (ended.code, document["pass_rate"], document["outcome_agreement"]) == (0, 1.0, 1.0), ended.stderr
    assert (document["parting"]["agent_id"], document["parting"]["step"]) == ("main", 4)
    assert document["flake_score"] == pytest.approx(2 / 3, abs=1e-3)
    assert [run["changed_files"] for run in document["runs"]] == [["tests/gone"]] * 3
    assert len({run["session_id"] for run in document["runs"]}) == 3
    assert (document["folder_changed"], (project.folder / "tests/gone").exists()) == ([], True)
