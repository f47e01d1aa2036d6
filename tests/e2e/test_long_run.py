"""A long run from the command line: its conversation is shortened, it costs something, and a limit ends it softly."""

from __future__ import annotations

import pytest
from program import EDITS, Program, bash, use

pytestmark = pytest.mark.docker

POLICY = """\
extends: default
limits: {prices: {"script:*": {input: 1, output: 10}}}
"""


def test_a_run_is_shortened_resumed_and_ended_by_what_it_costs(program: Program) -> None:
    """Without a price a limit on the cost is refused; a price of the policy is enough."""
    policy = program.folder.parent / "policy.yaml"
    policy.write_text(POLICY)
    how = ("--output", "json", *EDITS, "--allow", "Bash", "--max-cost", "0.2")
    first = [
        {"tools": [bash("echo one")], "usage": {"input_tokens": 10_000}},
        {"tools": [bash("echo two")], "usage": {"input_tokens": 90_000}},
        {"text": "The summary: one and two.", "usage": {"output_tokens": 1_000}},
        {"expect": "two", "tools": [bash("echo three")]},
        {"text": "Done: {{task}}"},
    ]
    script = program.script(first, window_tokens=100_000)

    refused = program.call("run", *how, "--model", script, "count")
    assert (refused.code, refused.document["status"]) == (2, "config_error")
    assert "no price is known for the model script:" in refused.stderr
    assert list(program.home.glob("state/sandbox-agent/sessions/*")) == []

    ended = program.call("run", *how, "--policy", str(policy), "-v", "--model", script, "count")
    assert (ended.code, ended.document["result"]) == (0, "Done: count"), ended.stderr
    assert ended.document["total_cost_usd"] == pytest.approx(0.11)
    assert "~ the conversation was summarised: about 90," in ended.stderr

    second = [
        {"tools": [use("Write", file_path="b.txt", content="b\n")], "usage": {"input_tokens": 250_000}},
        {"text": "never said"},
    ]
    script = program.script(second)
    resumed = program.call("run", *how, "--policy", str(policy), "--resume", "last", "--model", script, "more")
    document = resumed.document
    assert (resumed.code, document["subtype"], document["unapplied_files"]) == (4, "error_max_budget_usd", ["b.txt"])
    assert document["limit"] == {"name": "cost_usd", "value": 0.2}
    assert document["error"] == "the limit cost_usd = 0.20 was reached (0.25 were used)"

    lines = program.call("sessions", "show", "last").stdout.splitlines()
    assert lines[-3].startswith("run 1     done · 4 turns")
    assert lines[-2].startswith("run 2     limit (cost_usd = 0.20) · 1 turn")
    assert lines[-1].endswith("0.36 USD")
