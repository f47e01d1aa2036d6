"""`sandbox-agent mcp serve` as other agents use it, with clients that are not ours and with our own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from program import COMMAND, Program, containers_of

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-this-test"


def text_of(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_a_session_over_standard_streams(program: Program) -> None:
    """Calls run in the container, what is asked is asked, one is taken back, the changes are applied where that is
    allowed; and afterwards the session is there for the person like any other."""
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "once"})

    words = [*COMMAND, "mcp", "serve", "-w", str(program.folder), "--allow-apply"]
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=program.environment())
    async with Client(parameters, elicitation_callback=elicit) as client:
        both = await client.call_tool("Bash", {"command": "cat a.txt; cat /proc/1/status | grep CapEff"})
        assert "one\nCapEff:\t0000000000000000" in text_of(both)
        assert not (await client.call_tool("Write", {"file_path": "/workspace/b.txt", "content": "two\n"})).is_error
        assert '"content": "two\\n"' in asked[0]
        with anyio.move_on_after(1) as scope:
            await client.call_tool("Bash", {"command": "sleep 300"})
        assert scope.cancelled_caught
        with anyio.fail_after(30):  # it did not outlive its call
            left = await client.call_tool("Bash", {"command": "pgrep -fc 'sleep 30[0]'"})
        assert text_of(left).startswith("0")
        assert not (program.folder / "b.txt").exists()
        assert "+two" in text_of(await client.call_tool("SessionDiff", {}))
        forked = text_of(await client.call_tool("SessionFork", {})).removeprefix("session_id: ")
        assert "b.txt" in text_of(await client.call_tool("Bash", {"command": "touch c.txt; ls", "session_id": forked}))
        assert "applied: b.txt" in text_of(await client.call_tool("SessionApply", {}))
    assert (program.folder / "b.txt").read_text() == "two\n"
    rows = [json.loads(line) for line in program.call("sessions", "list", "--json").stdout.splitlines()]
    assert [row["status"] for row in rows] == ["done", "done"]
    for row in rows:
        assert program.call("sessions", "audit", row["session_id"]).code == 0
        assert containers_of(row["session_id"]) == []
    assert "c.txt" in program.call("diff", forked).stdout  # of the fork, which was applied nowhere
    assert not (program.folder / "c.txt").exists()


async def test_http_takes_the_token_only_and_ends_at_once(program: Program) -> None:
    """No token, a wrong one, another host, another site: refused. SIGTERM in the middle of a call leaves nothing."""
    words = [*COMMAND, "mcp", "serve", "-w", str(program.folder), "--http", "0"]
    environment = program.environment(SANDBOX_AGENT_MCP_TOKEN=TOKEN)
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with await anyio.open_process(words, env=environment, stdin=subprocess.DEVNULL) as server:
        assert server.stderr is not None
        assert server.stdout is not None
        told = b""
        while (found := re.search(rb"http://127.0.0.1:\d+/mcp", told)) is None:
            told += await server.stderr.receive()
        url = found.group().decode()
        assert TOKEN.encode() not in told
        async with httpx2.AsyncClient(timeout=30) as http:
            for headers, code in (
                ({}, 401),
                ({"Authorization": "Bearer wrong"}, 401),
                ({**right, "Host": "example.org"}, 421),
                ({**right, "Origin": "http://example.org"}, 403),
                ({"Authorization": f"bearer {TOKEN}", "Origin": "http://example.org"}, 403),
                ({"Authorization": f"Basic {TOKEN}"}, 401),
            ):
                assert (await http.post(url, headers=headers, json={})).status_code == code
            assert (await http.get(url.replace("/mcp", "/"))).status_code == 401
        http = httpx2.AsyncClient(headers=right, timeout=30)
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            assert text_of(await client.call_tool("Bash", {"command": "cat a.txt"})).startswith("one\n")
            refused = await client.call_tool("Bash", {"command": "touch b.txt"})
            assert "--allow 'Bash(touch b.txt)'" in text_of(refused)
            session = program.session()
            assert containers_of(session.name) != []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_sleep, client)
                await _recorded(session / "events.jsonl", b"sleep 300")
                began_s = time.monotonic()
                server.send_signal(signal.SIGTERM)
                with anyio.fail_after(5):
                    await server.wait()
                tasks.cancel_scope.cancel()
        assert time.monotonic() - began_s < 5
        assert server.returncode == 143
        assert containers_of(session.name) == []
        with pytest.raises(anyio.EndOfStream):
            await server.stdout.receive()


async def _sleep(client: Client) -> None:
    with contextlib.suppress(MCPError):  # its server ends meanwhile
        await client.call_tool("Bash", {"command": "sleep 300"})


async def _recorded(path: Path, what: bytes) -> None:
    async with await anyio.open_process(["tail", "-n", "+1", "-f", str(path)]) as tail:
        assert tail.stdout is not None
        seen = b""
        with anyio.fail_after(20):
            while what not in seen:
                seen += await tail.stdout.receive()
        tail.terminate()


def test_our_own_client_uses_our_own_server(program: Program, tmp_path: Path) -> None:
    """A run whose model has the tools of another sandbox beside its own: a server of this machine, in the policy."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "there.txt").write_text("in the other one\n")
    policy = tmp_path / "policy.yaml"
    server = {"place": "host", "command": COMMAND[0], "args": [*COMMAND[1:], "mcp", "serve", "-w", str(other)]}
    env = {name: value for name, value in program.environment().items() if name.startswith("XDG_")}
    env |= {name: os.environ[name] for name in ("DOCKER_HOST", "PYTHONPATH") if name in os.environ}
    policy.write_text(json.dumps({"extends": "default", "mcp": {"servers": {"box": server | {"env": env}}}}))
    tried = program.call("mcp", "test", "box", "--policy", str(policy), "--json")
    assert tried.code == 0, tried.stderr
    assert tried.document["fine"]
    assert "mcp__box__Bash" in tried.document["tools"]
    call = {"name": "mcp__box__Bash", "input": {"command": "cat there.txt"}}
    script = program.script([{"tools": [call]}, {"text": "done"}])
    words = ["run", "-p", "--output", "stream-json", "--policy", str(policy), "--allow", "mcp__box__*"]
    ended = program.call(*words, "--model", script, "x")
    assert ended.code == 0, ended.stderr
    assert "in the other one" in ended.stdout
    listed = program.call("mcp", "list", "--policy", str(policy), "--json").document
    assert (listed["place"], len(listed["approved_tools"])) == ("host", len(tried.document["tools"]))
    assert sys.executable == listed["command"][0]


def test_a_server_that_is_not_there_or_has_changed(program: Program, tmp_path: Path) -> None:
    """`mcp test` says what is wrong and what to do, and its exit code says it too; --approve takes the new list."""
    source = (
        "import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n    i = m.get('id')\n"
        "    if m['method'] == 'initialize':\n        r = {'protocolVersion': '2025-11-25', 'capabilities': "
        "{'tools': {}}, 'serverInfo': {'name': 'tiny', 'version': '1'}}\n    elif m['method'] == 'tools/list':\n"
        "        r = {'tools': [{'name': 'hello', 'description': 'WORDS', 'inputSchema': {'type': 'object'}}]}\n"
        "    else:\n        r = None\n    e = {'code': -32601, 'message': 'no'}\n"
        "    if i is not None:\n        print(json.dumps({'jsonrpc': '2.0', 'id': i, **({'result': r} if r else "
        "{'error': e})}), flush=True)\n"
    )
    (program.folder / "server.py").write_text(source)
    config = tmp_path / "mcp.json"
    servers = {"tiny": {"command": "python3", "args": ["/workspace/server.py"]}, "gone": {"command": "no-such"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    both = program.call("mcp", "test", "--mcp-config", str(config))
    assert both.code == 1
    assert "ok  tiny" in both.stdout
    assert "NOT OK  gone" in both.stdout
    assert "there is no such program" in both.stdout
    (program.folder / "server.py").write_text(source.replace("WORDS", "other words"))
    changed = program.call("mcp", "test", "tiny", "--mcp-config", str(config))
    assert (changed.code, "changed: hello" in changed.stdout) == (1, True)
    assert program.call("mcp", "test", "tiny", "--approve", "--mcp-config", str(config)).code == 0
    assert program.call("mcp", "test", "tiny", "--mcp-config", str(config)).code == 0
    unknown = program.call("mcp", "test", "nope", "--mcp-config", str(config))
    assert (unknown.code, "those that are: tiny, gone" in unknown.stderr) == (2, True)
    assert program.call("sessions", "list").stdout == ""  # they were thrown away
