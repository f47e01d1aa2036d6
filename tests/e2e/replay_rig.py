"""A session of sixty steps to record: shell, edits, sub-agents side by side and in the background, an MCP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from program import DONE, Program, use

SERVER = """
import json, sys
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"name": "add", "description": "Adds.", "inputSchema": SCHEMA}]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "sums", "version": "1"}}
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call":
            with open("/workspace/sums.txt", "a") as file:
                file.write("sum\\n")
            total = message["params"]["arguments"]["a"] + 1
            result = {"content": [{"type": "text", "text": f"it is {total}"}]}
        case _:
            result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

ALLOW = ("Bash", "Bash(python3:*)", "Edit(/**)", "Read", "Task", "mcp__sums__*")


def worker(name: str) -> list[dict[str, Any]]:
    """Nine steps: each sees what the others have done by then."""
    steps: list[dict[str, Any]] = []
    for number in range(4):
        steps.append({"tools": [use("Bash", command=f"echo {name} {number} >> shared.txt; wc -l < shared.txt; date")]})
        steps.append(
            {"tools": [use("Write", file_path=f"/workspace/{name}.txt", content=f"{number}\n" * (number + 1))]}
        )
        steps[-1]["tools"].insert(0, use("Read", file_path="/workspace/shared.txt"))
    return [*steps, {"text": f"{name} is done"}]


def script(program: Program) -> str:
    """Sixty requests in all, of four agents."""
    (program.folder / "server.py").write_text(SERVER)
    main: list[dict[str, Any]] = [
        {
            "tools": [
                use("Bash", command="echo start; id -u; id; hostname; python3 -c 'print({*\"abc\"})'"),
                use("Glob", pattern="*"),
            ]
        },
        {
            "tools": [
                use("Task", description="one", prompt="[one]"),
                use("Task", description="two", prompt="[two]"),
                use("Task", description="behind", prompt="[behind]", run_in_background=True),
            ]
        },
    ]
    for number in range(15):
        main.append({"tools": [use("mcp__sums__add", a=number)]})
        main.append({"tools": [use("Bash", command=f"echo {number} >> numbers.txt; git init -q . 2>/dev/null; ls -l")]})
    main.append({"tools": [use("Bash", command="python3 -c 'import missing'"), use("Bash", command="rm -r /etc/x")]})
    agents = {"[one]": worker("one"), "[two]": worker("two"), "[behind]": worker("behind")}
    return program.script([*main, DONE, DONE], agents=agents)


def record(program: Program, model: str, file: Path, *options: str) -> Any:
    """Record it; returns how the run ended."""
    config = program.folder.parent / "servers.json"
    servers = {"sums": {"command": "python3", "args": ["/workspace/server.py"]}}
    config.write_text(json.dumps({"mcpServers": servers}))
    allowed = [part for rule in ALLOW for part in ("--allow", rule)]
    options = ("--mcp-config", str(config), *allowed, "--record", str(file), *options)
    return program.call("run", "-p", "--model", model, *options, "do the sixty steps")
