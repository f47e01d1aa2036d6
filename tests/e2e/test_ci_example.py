"""The script of examples/ci as a pipeline runs it: set up, run under a policy, check, reports, exit code. No key."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from program import Program, bash, use

pytestmark = pytest.mark.docker

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
FINDING = {
    "file": "/workspace/a.txt",
    "line": 1,
    "summary": "It says one.",
    "failure_scenario": "Somebody counts on two.",
    "severity": "high",
}
TURNS = [
    {
        "text": "I change it and report.",
        "tools": [
            use("Edit", file_path="/workspace/a.txt", old_string="one", new_string="two"),
            use("ReportFindings", findings=[FINDING]),
            bash("git push"),
        ],
    },
    {"text": "Done, but for the push."},
]


def run_agent(program: Program, *, checks: str, **env: str) -> tuple[int, Path, str]:
    """One job: its exit code, its reports, and what it said."""
    reports = program.folder.parent / "reports"
    summary = program.folder.parent / "step-summary"
    look = use("Read", file_path="/workspace/a.txt")
    given = {
        "AGENT_WORKSPACE": str(program.folder),
        "AGENT_REPORTS": str(reports),
        "AGENT_POLICY": str(EXAMPLES / "policy.yaml"),
        "AGENT_MODEL": program.script([{"text": "I look first.", "tools": [look]}, *TURNS]),
        "AGENT_CHECKS": checks,
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = subprocess.run(
        [EXAMPLES / "run-agent.sh", "Count; $(touch hacked) `touch hacked`"],
        env=program.environment(**given, **env),
        cwd=program.folder.parent,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return done.returncode, reports, done.stderr


def test_a_job_ends_by_its_policy_and_its_checks_and_leaves_reports(program: Program) -> None:
    """A denial fails it unless that is said to be fine; a check that fails does in any case, and nothing is applied."""
    code, reports, said = run_agent(program, checks="grep -q two a.txt\n\ntest -s a.txt\n", AGENT_PASS_ON="3")
    assert (code, "exit code 3 counts as passed" in said) == (0, True), said
    document: dict[str, Any] = json.loads((reports / "result.json").read_text())
    assert (document["status"], document["exit_code"], len(document["checks"])) == ("denied", 3, 2)
    suites = ElementTree.parse(reports / "junit.xml").getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("3", "1")
    [result] = json.loads((reports / "findings.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a.txt"
    assert (program.folder.parent / "step-summary").read_text().startswith("### sandbox-agent: denied\n")
    assert "git push" in (reports / "session.html").read_text()
    assert [name for name in os.listdir(program.folder.parent) if name == "hacked"] == []

    # The same with a check that fails and changes that would be applied.
    code, reports, said = run_agent(program, checks="grep -q three a.txt", AGENT_PASS_ON="3", AGENT_APPLY="always")
    assert code == 1, said
    assert (program.folder / "a.txt").read_text() == "one\n"
    [failed] = (
        ElementTree.parse(reports / "junit.xml").getroot().findall(".//testcase[@classname='sandbox-agent.check']")
    )
    assert failed.find("failure") is not None


def test_the_pipelines_call_the_script_with_what_it_knows() -> None:
    """And never write a stranger's text into a shell's."""
    script = (EXAMPLES / "run-agent.sh").read_text()
    for name in ("github.yml", "gitlab-ci.yml"):
        text = (EXAMPLES / name).read_text()
        yaml.safe_load(text)
        assert 'examples/ci/run-agent.sh "$TASK"' in text
        used = {word.rstrip(":") for word in text.split() if word.startswith("AGENT_")}
        assert used
        assert all(word in script for word in used)
        assert not [line for line in text.splitlines() if "run:" in line and "${{" in line]
