"""`sandbox-agent mcp list`: what a run would start, and where, without starting it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_calls import call

from sandbox_agent.mcp.names import tool_name
from sandbox_agent.mcp.pins import Pins
from sandbox_agent.policy.servers import McpServer, Place, Transport

POLICY = """\
extends: default
mcp:
  host: [far]
  servers:
    db:
      place: host
      command: db-server
      args: ["${MCP_TEST_URL}"]
    inside:
      command: "./tool\\u001b[2J"
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy with two servers, in a state and a configuration of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MCP_TEST_URL", raising=False)
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def test_each_server_with_its_place_and_what_it_lacks(policy: str, tmp_path: Path) -> None:
    """A variable that is not set is told and hides no other server; what is of others is shown as it is."""
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"far": {"url": "https://example.org/mcp?key=secret"}}}))
    ended = call("mcp", "list", "--policy", policy, "--mcp-config", str(config))
    assert ended.code == 0
    assert "far  host: on this machine, or behind a URL: in no container" in ended.out
    assert "https://example.org" in ended.out
    assert "secret" not in ended.out
    assert "inside  session: in the session's container" in ended.out
    assert "\x1b" not in ended.out
    assert f"    ! {policy}:5: the MCP server db needs the variable MCP_TEST_URL, which is not set" in ended.out
    rows = [json.loads(line) for line in call("mcp", "list", "--policy", policy, "--json").out.splitlines()]
    assert [(row["name"], row["place"], row["problem"] is None) for row in rows] == [
        ("db", "host", False),
        ("inside", "session", True),
    ]


def test_what_was_approved(policy: str, tmp_path: Path) -> None:
    """It goes by what the server is, not by its name alone."""
    (tmp_path / "state" / "sandbox-agent").mkdir(parents=True)
    inside = McpServer("inside", Transport.STDIO, Place.SESSION, ("./tool\x1b[2J",))
    Pins(tmp_path / "state" / "sandbox-agent").approve(inside, {"a": "1", "b": "2"})
    lines = [line.strip() for line in call("mcp", "list", "--policy", policy).out.splitlines()]
    assert [line for line in lines if "in rules" in line] == [
        "never used: what its tools are is remembered at the first use; in rules mcp__db__*",
        "2 tools approved; in rules mcp__inside__*",
    ]


def test_what_was_approved_of_a_server_with_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run knows it by the command that it comes to, and so does the list; its name in rules is the made-fit one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MCP_TEST_ROOT", "/srv")
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {"my.db": {"place": "own", "command": "${MCP_TEST_ROOT}/db"}}}')
    (tmp_path / "state" / "sandbox-agent").mkdir(parents=True)
    known = McpServer("my.db", Transport.STDIO, Place.OWN, ("/srv/db",))
    Pins(tmp_path / "state" / "sandbox-agent").approve(known, {"a": "1"})

    row = json.loads(call("mcp", "list", "--mcp-config", str(config), "--json").out)

    assert (row["approved_tools"], row["command"]) == (["a"], ["${MCP_TEST_ROOT}/db"])
    assert row["rule"] == tool_name("my.db", "x").removesuffix("x") + "*"


def test_nothing_to_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how to name a server; JSON says nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ended = call("mcp", "list")
    assert (ended.code, ended.out, "--mcp-config FILE" in ended.err) == (0, "", True)
    assert call("mcp", "list", "--json") == (0, "", "")
