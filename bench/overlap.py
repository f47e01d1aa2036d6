"""Does the first model request wait for the container, or the container for the model? Each is held back to see.

Three kinds of a run of one command: as it is, with every container start held back, with the first answer held back.
The request's time is the API's stamp, the container's is `sandbox_ready` in the run's record. Also: `--help`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from bench.agents import Agent, find_agent, ours_path
from bench.plan import Results
from bench.scripted_api import ScriptedApi, Turn
from bench.session import SessionFailed, run_session
from bench.slow_engine import slow_engine
from bench.workload import make_workspace
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.tape import read_tape

HOLD_S = 3.0
HELP_REPEATS = 4
MEASURED = {
    "prompt": ("request", "ready"),
    "slow_engine": ("request_slow_engine", None),
    "slow_api": (None, "ready_slow_api"),
}
"""The rows that each kind fills: first request, container ready."""

SCRIPT: list[Turn] = [[("Bash", {"command": "true", "description": "Do nothing"})], []]
"""With a call, so that no run is over before its container is ready."""


async def measure_overlap(api: ScriptedApi, rounds: int, work: Path, results: Results) -> None:
    """Fill in the rows of the start and of --help."""
    workspace = await anyio.to_thread.run_sync(make_workspace, work)
    agent = find_agent("ours", workspace, work)
    assert agent is not None
    url = resolve_endpoint(os.environ).url
    kinds = tuple(MEASURED)
    if not url.startswith("unix://"):
        kinds = ("prompt", "slow_api")
        results.gaps["request_slow_engine", "ours"] = "the engine is not on a unix socket"
    engine = Path(url.removeprefix("unix://"))
    with tempfile.TemporaryDirectory(prefix="overlap-", dir=work) as home:
        # Not counted: the first run of a user tries what their engine can do, and remembers it.
        await _run("prompt", agent, api, workspace, Path(home), engine, Results())
        for number in range(rounds):
            print(f"bench: overlap, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for kind in random.sample(kinds, len(kinds)):
                await _run(kind, agent, api, workspace, Path(home), engine, results)
            await anyio.to_thread.run_sync(_help, results)
    api.hold_s = 0.0


async def _run(
    kind: str, agent: Agent, api: ScriptedApi, workspace: Path, home: Path, engine: Path, results: Results
) -> None:
    request, ready = MEASURED[kind]
    api.hold_s = HOLD_S if kind == "slow_api" else 0.0
    async with AsyncExitStack() as stack:
        more_env = {}
        if kind == "slow_engine":
            await stack.enter_async_context(slow_engine(engine, home / "docker.sock", HOLD_S))
            more_env["DOCKER_HOST"] = f"unix://{home / 'docker.sock'}"
        try:
            started = await run_session(agent, api, SCRIPT, workspace, home, more_env)
        except SessionFailed as exc:
            results.trouble(request or "ready_slow_api", "ours", str(exc))
            return
    if request is not None:
        results.add(request, "ours", api.seen[0].arrived_s - started.monotonic_s)
    if ready is not None:
        results.add(ready, "ours", _ready_unix_s(home) - started.unix_s)


def _ready_unix_s(home: Path) -> float:
    record = max(
        (home / "state/sandbox-agent/sessions").glob("*/events.jsonl")
    )  # a session's name begins with its time
    [ready] = [entry for entry in read_tape(record).entries if entry.event.type == "sandbox_ready"]
    return ready.time_unix_s


def _help(results: Results) -> None:
    commands = {"ours": [str(ours_path()), "--help"], "host": [sys.executable, "-c", "pass"]}
    for _ in range(HELP_REPEATS):
        for name in random.sample(list(commands), len(commands)):
            started = time.perf_counter()
            subprocess.run(commands[name], stdout=subprocess.DEVNULL, check=True)
            results.add("help", name, time.perf_counter() - started)
