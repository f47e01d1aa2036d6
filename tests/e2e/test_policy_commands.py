"""The policy commands as people and pipelines call them. None of them needs an engine."""

from __future__ import annotations

from pathlib import Path

from program import Program

VECTORS = Path(__file__).parents[1] / "data" / "bash_rules.json"


def test_all_public_vectors_pass_through_the_command_line(program: Program) -> None:
    """Each with its own rules."""
    ended = program.call("policy", "test", str(VECTORS), "--junit", str(program.home.parent / "report.xml"))

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == "223 cases: 223 passed, 0 failed\n"
    assert (program.home.parent / "report.xml").read_text().count("<testcase ") == 223
