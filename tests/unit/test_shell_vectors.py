"""Our own vectors, over every kind of the public ones: other wrappers, options, and places for the same thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from policy_desk import bash, policy

from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import Mode, Verdict

DATA: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "shell_vectors.yaml").read_text())
WANTED = {
    "allow": {Verdict.ALLOW},
    "ask": {Verdict.ASK},
    "deny": {Verdict.DENY},
    "not_allow": {Verdict.ASK, Verdict.DENY},
}
RULES = {name: policy(**rules, read_only_commands=name == "none") for name, rules in DATA["rule_sets"].items()}
VECTORS = [(entry, command) for entry in DATA["vectors"] for command in entry["commands"]]


@pytest.mark.parametrize(
    ("entry", "command"), VECTORS, ids=[f"{entry['group']}-{entry['rules']}-{command}" for entry, command in VECTORS]
)
def test_a_command_is_judged_as_it_must_be(entry: dict[str, Any], command: str) -> None:
    """And what is denied stays so in the mode that allows the rest."""
    paths = [replace(access, resolved=access.path) for access in analyse(command).accesses()]
    decision = bash(RULES[entry["rules"]], command, paths=paths)
    assert decision.verdict in WANTED[entry["expect"]], decision.reason
    if entry["expect"] == "deny":
        assert bash(RULES[entry["rules"]], command, mode=Mode.BYPASS).verdict is Verdict.DENY
