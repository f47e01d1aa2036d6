"""The public MCP conformance suite on our client and our server: each scenario that applies passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from anyio.abc import ByteReceiveStream
from conformance_server import TOKEN
from conformance_suite import SCENARIO_S, NoSuiteError, Suite, had, port_of, with_token
from program import COMMAND, Program

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
SCENARIOS: dict[str, Any] = yaml.safe_load((HERE.parent / "data/mcp_conformance.yaml").read_text())


@pytest.fixture(scope="module")
def suite() -> Suite:
    """The suite; a machine that cannot have it fails here, with one line."""
    try:
        return had(SCENARIOS["version"])
    except NoSuiteError as exc:
        pytest.fail(str(exc), pytrace=False)


def test_every_scenario_is_listed_once(suite: Suite) -> None:
    """A scenario that is neither run nor excused would be one that nobody has thought of."""
    for side, there in suite.scenarios().items():
        listed = [*SCENARIOS[side]["pass"], *SCENARIOS[side].get("pass_with_its_tools", ())]
        for group in SCENARIOS[side]["not_applicable"]:
            assert group["reason"].strip()
            listed += group["scenarios"]
        assert sorted(listed) == sorted(there)


async def test_our_client_passes(suite: Suite) -> None:
    """Side by side: what most of them do is wait."""
    client = f"{sys.executable} {HERE / 'conformance_client.py'}"
    await _all_pass([suite.command("client", name, "--command", client) for name in SCENARIOS["client"]["pass"]])


async def test_our_server_passes(suite: Suite, program: Program) -> None:
    """`mcp serve --http`, as anybody would start it; the token is added on the way."""
    words = [*COMMAND, "mcp", "serve", "-w", str(program.folder), "--http", "0"]
    environment = program.environment(SANDBOX_AGENT_MCP_TOKEN=TOKEN)
    async with await anyio.open_process(words, env=environment, stdin=subprocess.DEVNULL) as server:
        assert server.stderr is not None
        await _server_passes(suite, server.stderr, SCENARIOS["server"]["pass"])
        server.terminate()
    assert server.returncode == 143


async def test_our_server_passes_with_the_tools_of_the_suite(suite: Suite) -> None:
    """The same server, with other tools behind it."""
    async with await anyio.open_process([sys.executable, str(HERE / "conformance_server.py")]) as server:
        assert server.stdout is not None
        await _server_passes(suite, server.stdout, SCENARIOS["server"]["pass_with_its_tools"])
        server.terminate()


async def _server_passes(suite: Suite, output: ByteReceiveStream, names: list[str]) -> None:
    told = b""
    while (found := re.search(rb"http://127.0.0.1:(\d+)/mcp", told)) is None:
        told += await output.receive()
    port = int(found.group(1))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, lambda stream: with_token(stream, port, TOKEN))
        url = f"http://127.0.0.1:{port_of(listener)}/mcp"
        await _all_pass([suite.command("server", name, "--url", url) for name in names])
        tasks.cancel_scope.cancel()


async def _all_pass(commands: list[list[str]]) -> None:
    failed: dict[str, str] = {}

    async def run(words: list[str]) -> None:
        with anyio.move_on_after(SCENARIO_S) as scope:
            ended = await anyio.run_process(words, check=False, stderr=subprocess.STDOUT)
        name = words[words.index("--scenario") + 1]
        if scope.cancelled_caught:
            failed[name] = f"not done within {SCENARIO_S} s"
        elif ended.returncode or not re.search(rb"Passed: ([1-9]\d*)/\1, 0 failed", ended.stdout):
            failed[name] = ended.stdout.decode()[-2_000:]

    async with anyio.create_task_group() as tasks:
        for words in commands:
            tasks.start_soon(run, words)
    assert failed == {}
