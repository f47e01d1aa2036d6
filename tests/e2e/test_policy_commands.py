"""The policy commands as people and pipelines call them. None of them needs an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import DONE, WRITE, Program, bash

VECTORS = Path(__file__).parents[1] / "data" / "bash_rules.json"


def test_all_public_vectors_pass_through_the_command_line(program: Program) -> None:
    """Each with its own rules."""
    ended = program.call("policy", "test", str(VECTORS), "--junit", str(program.home.parent / "report.xml"))

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == "223 cases: 223 passed, 0 failed\n"
    assert (program.home.parent / "report.xml").read_text().count("<testcase ") == 223


def test_explain_says_the_verdict_by_its_exit_code_and_takes_a_command_from_a_pipe(program: Program) -> None:
    """Plain text where it is no terminal; JSON for programs; the layers of a run, the user's own among them."""
    own = program.home / "config" / "sandbox-agent" / "policy.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("rules:\n  deny: ['Bash(npm publish:*)']\n")
    allowed = program.call("policy", "explain", "Bash(ls | head)")
    denied = program.call("policy", "explain", "Bash(ls; npm publish)")
    (program.folder / "build.sh").write_text("make all\nfor t in a b; do make $t; done\n")
    with (program.folder / "build.sh").open() as script:
        asked = program.call("policy", "explain", "--json", stdin=script.fileno())

    assert (allowed.code, denied.code, asked.code) == (0, 3, 3)
    assert allowed.stdout.startswith("allow  by policy ")
    assert f"rule Bash(npm publish:*), {own}:2" in denied.stdout
    assert "\x1b" not in denied.stdout
    assert asked.document["would_allow"] == ["Bash(make all)", "Bash(make a)", "Bash(make b)"]
    assert [program.call("policy", "explain", *bad).code for bad in (("git push",), ("Bsh(ls)",), ("-",))] == [2, 2, 2]


@pytest.mark.docker
def test_a_denied_run_teaches_the_policy_under_which_it_passes(program: Program) -> None:
    """From the record to a diff, to a file, to a run that is not denied anything."""
    script = program.script([WRITE, {"tools": [bash("touch b && cat a.txt"), bash("git push")]}, DONE])
    run = ("run", "-p", "--model", script, "x")
    assert program.call(*run).code == 3

    diff = program.call("policy", "learn", "last")
    assert diff.code == 0
    assert [line for line in diff.stdout.splitlines() if line.startswith("+ ")] == [
        '+    - "Edit(/new.txt)"',
        '+    - "Bash(touch b)"',
    ]
    assert "not allowed: Bash git push: denied by rule no-git-push, policies/default.yaml:" in diff.stderr

    learned = program.home.parent / "learned.yaml"
    assert program.call("policy", "learn", "last", "--no-limits", "--write", str(learned)).code == 0
    assert program.call("policy", "learn", "last", "--write", str(learned)).code == 2
    again = program.call("run", "-p", "--output", "json", "--policy", str(learned), "--model", script, "x").document
    assert [denial["tool_input"] for denial in again["permission_denials"]] == [{"command": "git push"}]
