"""The gate from the command line: a policy lists hosts, pip installs from the index this machine is configured for, and
what was refused is said to everybody."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest
from program import DONE, Program, bash

pytestmark = pytest.mark.docker

INSTALL = "pip install -q --target /tmp/t iniconfig && PYTHONPATH=/tmp/t python3 -c 'import iniconfig; print(7 * 6)'"
REFUSED = "git ls-remote https://refused.test/repo.git; true"


def run(program: Program, sandbox: dict[str, Any], *commands: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The document of a run that makes these calls, and its record."""
    policy = program.home / "policy.yaml"
    program.home.mkdir(exist_ok=True)
    policy.write_text(json.dumps({"extends": "default", "sandbox": sandbox}))
    script = program.script([{"tools": [bash(command)]} for command in commands] + [DONE])
    options = ("--policy", str(policy), "--mode", "bypassPermissions", "--model", script, "--output", "json")
    ended = program.call("run", *options, "x")
    assert ended.code == 0, ended.stderr
    record = (program.session() / "events.jsonl").read_text().splitlines()
    return ended.document, [json.loads(line) for line in record]


def test_pip_installs_from_this_machine_s_index(program: Program) -> None:
    """The group opens what pip here is configured for, with the certificates it needs; every host is in the document,
    the calls' effects and the record."""
    document, record = run(program, {"image": "dev", "allow_hosts": ["@python"]}, INSTALL, REFUSED)
    hosts = {asked["host"]: asked for asked in document["hosts_asked"]}
    refused = hosts.pop("refused.test")
    results = [event["content"][0]["content"] for event in record if event["type"] == "tool_results"]
    effects = [event["hosts"] for event in record if event["type"] == "call_effects"]

    assert results[0].startswith("42\n")
    assert hosts
    assert all(asked["allowed"] and asked["received_bytes"] and not asked["refused"] for asked in hosts.values())
    assert (refused["allowed"], refused["refused"]) == (0, 1)
    assert refused["reasons"] == ["refused.test:443 is not in sandbox.allow_hosts"]
    assert "Network access was refused during this call: refused.test:443 is not in sandbox.allow_hosts" in results[1]
    assert {urllib.parse.urlsplit(f"//{host}").hostname for host in effects[0]} == {*hosts}
    assert effects[1] == ["refused.test:443"]
    assert record[0]["sandbox"]["allow_hosts"] == [{"host": "@python", "port": None, "allow_private": False}]


def test_a_bundle_that_is_none_stops_the_run(program: Program) -> None:
    """One line, before anything is started."""
    policy = program.home / "policy.yaml"
    program.home.mkdir(exist_ok=True)
    policy.write_text(json.dumps({"sandbox": {"allow_hosts": ["a.test:443"], "ca_bundle": "/nonexistent/ca.pem"}}))
    ended = program.call("run", "--policy", str(policy), "--model", program.script([DONE]), "-p", "x")

    assert ended.code == 2
    assert ended.stderr == "sandbox-agent: sandbox.ca_bundle /nonexistent/ca.pem: No such file or directory\n"
