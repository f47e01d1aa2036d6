"""The published JSON Schema says of a file's shape what loading says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.published import SCHEMA_FILE, json_schema, json_schema_text
from sandbox_agent.policy.source import parse_document, shipped_dir, shipped_names


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """Of the schema as it is published."""
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_published_file_is_current() -> None:
    """Made again by: sandbox-agent policy schema > policies/schema.json."""
    assert (shipped_dir() / SCHEMA_FILE).read_text() == json_schema_text()


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_policies_fit_and_name_the_schema(validator: Draft202012Validator, name: str) -> None:
    """Their first line tells editors where it is, relative to the file."""
    text = (shipped_dir() / f"{name}.yaml").read_text()
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []
    assert text.startswith(f"# yaml-language-server: $schema=./{SCHEMA_FILE}\n")


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_rules_have_examples_and_restrictions_a_reason(name: str) -> None:
    """One that fits and one that does not, at least."""
    rules: dict[str, Any] = parse_document((shipped_dir() / f"{name}.yaml").read_text(), name).data["rules"]
    for kind, entries in rules.items():
        for entry in entries:
            assert entry["matches"], entry
            assert entry["not_matches"], entry
            assert kind == "allow" or entry["reason"], entry


GOOD = [
    "{}",
    "mode: plan\nrules:\nhooks:\nlimits:\n",
    "extends: ci\nlock: mode\n",
    "extends: [ci, readonly]\nlock: [sandbox, limits.turns, bypassPermissions]\n",
    "rules: {deny: [Edit, {rule: 'Bash(rm:*)', id: a.b-c, reason: x}], ask: , allow: ['Bash(ls:*)']}\n",
    "sandbox: {memory: 2GiB, disk: 500 MB, cpus: 0.5, masks: []}\n",
    "sandbox: {memory: 1073741824, disk: '16777216'}\n",
    "limits: {turns: null, wall_s: 0.5}\n",
    "mcp: {servers: {}}\nsandbox: {allow_hosts: []}\nlimits: {tokens: null, subagents: {}}\n",
    "lock: [limits.subagents.total, limits.prices]\nlimits: {tokens: 9, cost_usd: 0.5, subagents: , prices: }\n",
    "limits: {prices: {'a-*': {input: 1, output: 2.5, cache_read: 0}}, subagents: {depth: 0, at_once: 1}}\n",
    "sandbox: {allow_hosts: ['a.org:443', '*.a.org:1', '@python', '[::1]:80']}\n",
    "sandbox: {allow_hosts: [{host: a, port: 1, allow_private: true}, {host: 'a:1'}, {host: '@node'}]}\n",
    "sandbox: {allow_hosts: , egress: 1GiB, ca_bundle: /etc/ca.pem}\n",
    "hooks: {stop: [{command: echo}], pre_tool_use: [{command: [a, b], matcher: Bash, timeout_s: 3}]}\n",
    "saved_rules: ignore\nread_only_commands: ask\n",
]
BAD = [
    "mod: plan\n",
    "rules: {denny: []}\n",
    "rules: {deny: [{rule: Edit, reasn: x}]}\n",
    "rules: {deny: [{reason: x}]}\n",
    "rules: {deny: [3]}\n",
    "rules: {deny: Edit}\n",
    "rules: [Edit]\n",
    "sandbox: {memroy: 2GiB}\n",
    "sandbox: {memory: lots}\n",
    "sandbox: {memory: 2}\n",
    "sandbox: {memory: -1GiB}\n",
    "sandbox: {network: host}\n",
    "sandbox: {pids: 1}\n",
    "sandbox: {cpus: 0}\n",
    "sandbox: {allow_hosts: a.org:443}\n",
    "sandbox: {allow_hosts: [a.org]}\n",
    "sandbox: {allow_hosts: ['@go']}\n",
    "sandbox: {allow_hosts: [{port: 443}]}\n",
    "sandbox: {allow_hosts: [{host: a, port: 443, private: true}]}\n",
    "sandbox: {ca_bundle: x.pem}\n",
    "limits: {turns: 0}\n",
    "limits: {turns: 1.5}\n",
    "limits: {turn: 1}\n",
    "limits: {wall_s: x}\n",
    "limits: {subagents: {deep: 1}}\n",
    "mode: fast\n",
    "mode: on\n",
    "version: 2\n",
    "version: true\n",
    "lock: modes\n",
    "lock: [sandbox.memry]\n",
    "extends: ''\n",
    "extends: 3\n",
    "extends: [[ci]]\n",
    "saved_rules: true\n",
    "hooks: {stop: [{comand: x}]}\n",
    "hooks: {stpo: []}\n",
    "mcp: {servers: {a: {comand: x}}}\n",
    "name: 'a b'\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_loads_fits_the_schema(validator: Draft202012Validator, text: str) -> None:
    """Short and long rules, sizes of every form, empty sections."""
    parse_policy(text)
    assert [error.message for error in validator.iter_errors(parse_document(text, "p").data)] == []


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused_for_its_shape_does_not_fit_the_schema(validator: Draft202012Validator, text: str) -> None:
    """Unknown keys at every depth, wrong kinds, values out of range."""
    with pytest.raises(PolicyError):
        parse_policy(text)
    assert not validator.is_valid(parse_document(text, "p").data)
