"""What a call to an MCP server in the session's container costs over the time that the server itself takes for it.

The server is a small one of our own, which tells with each answer how long it had the call. Measured from the tool's
start to its result, with everything between the two: the protocol, the streams of the engine, and the checks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.plan import Results
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.open import open_session
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.models.absent import AbsentModel

CALLS = 200
WARM_UP = 10
SERVER = r"""
import json, sys, time
for line in sys.stdin:
    began = time.perf_counter()
    message = json.loads(line)
    method, answer = message["method"], {"jsonrpc": "2.0", "id": message.get("id")}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "work", "description": "Works.", "inputSchema": {
            "type": "object", "properties": {"text": {"type": "string"}}}}]}
    elif method == "tools/call":
        sum(number * number for number in range(5_000))
        took = time.perf_counter() - began
        answer["result"] = {"content": [{"type": "text", "text": repr(took)}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    if answer["id"] is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
"""


async def measure_servers(names: tuple[str, ...], rounds: int, quick: bool, work: Path, results: Results) -> None:
    """Fill in the row."""
    if "ours" not in names:
        return
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="servers-", dir=work, ignore_cleanup_errors=True) as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        try:
            await _rounds(Path(folder), rounds, 20 if quick else CALLS, results)
        finally:
            del os.environ["XDG_STATE_HOME"]
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before


async def _rounds(folder: Path, rounds: int, calls: int, results: Results) -> None:
    for number in range(rounds):
        print(f"bench: mcp, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        try:
            await _round(folder, calls, results)
        except SandboxAgentError as exc:
            results.trouble("mcp_call", "ours", str(exc))
            return


async def _round(folder: Path, calls: int, results: Results) -> None:
    workspace, config = folder / "project", folder / "mcp.json"
    workspace.mkdir(exist_ok=True)
    (workspace / "server.py").write_text(SERVER)
    entry = {"command": "python3", "args": ["-I", "/workspace/server.py"]}
    config.write_text(json.dumps({"mcpServers": {"bench": entry}}))
    run = RunConfig(workspace=workspace, mcp_config=(config,), project_instructions=False)
    async with open_session(run, caller=AbsentModel("bench")) as session:
        await session.sandbox.start()
        assert session.servers is not None
        await session.servers.ready()
        tool = session.pool.get("mcp__bench__work")
        if tool is None:
            results.trouble("mcp_call", "ours", "the server did not come up")
            return
        given = tool.input_model.model_validate({"text": "x" * 100})
        for number in range(WARM_UP + calls):
            started_s = time.perf_counter()
            result = await tool.run(given, session.ctx)
            took_s = time.perf_counter() - started_s
            if number >= WARM_UP:
                results.add("mcp_call", "ours", took_s - float(str(result.content)))
        session.unapplied = set()
