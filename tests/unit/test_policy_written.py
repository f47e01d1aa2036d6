"""A policy that was written down is the same policy when it is read again."""

from __future__ import annotations

import json

import pytest

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import load_policy, parse_policy
from sandbox_agent.policy.written import policy_as_json, policy_of_json

TEXT = """
rules:
  deny: ["Bash(rm:*)", {rule: "Read(secrets/**)", reason: "not for you", id: secrets}]
  ask: ["WebFetch(domain:example.org)"]
  allow: ["Edit(src/**)", "mcp__notes__*"]
sandbox:
  allow_hosts: ["*.example.org:443", "@python"]
mcp:
  servers:
    notes: {command: python3, args: [notes.py]}
"""


def again(policy):
    return policy_of_json(json.loads(json.dumps(policy_as_json(policy))))


@pytest.mark.parametrize("name", ["default", "readonly", "ci", "untrusted", "trusted-build"])
def test_shipped_policies_come_back_equal(name: str) -> None:
    """What is read is what was written."""
    policy = load_policy(name, allow=["Bash(pytest:*)"], deny=["Bash(curl:*)"])

    assert again(policy) == policy


def test_rules_hosts_and_servers_come_back_equal() -> None:
    """With everything that a policy can have but hooks."""
    policy = parse_policy(TEXT)

    assert again(policy) == policy
    assert policy.servers
    assert policy.sandbox.allow_hosts


def test_something_else_is_refused() -> None:
    """In one line, as a policy that is wrong."""
    data = policy_as_json(load_policy("default"))
    data["rules"]["deny"] = [{"text": "Bash("}]

    with pytest.raises(PolicyError, match="the policy of the bundle cannot be used"):
        policy_of_json(data)
