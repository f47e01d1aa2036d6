"""What reads at the head of an answer save that begin while the rest of it streams, beside the same without.

The answers have ten calls and come slowly, a piece every few milliseconds, as models write. The cost of a turn is the
time from the last byte of such an answer to the first byte of the next request, as in the loop part.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from bench.agents import Agent, find_agent
from bench.loop import turns_of
from bench.plan import Results
from bench.scripted_api import ScriptedApi
from bench.session import SessionFailed, overheads, run_session
from bench.workload import make_workspace

PACE_S = 0.02
"""Between two pieces of an answer; each of its calls has three."""
TURNS = 6
SCENARIOS = {"read10": "early_read10", "grep10": "early_grep10"}
_AFTER_THE_ANSWER = (
    "import sys; from sandbox_agent.engine import early; early.EARLY_TOOLS = frozenset(); "
    "from sandbox_agent.cli import main; sys.exit(main())"
)
"""The command line with nothing in the list of what may begin early."""


async def measure_early(names: Sequence[str], rounds: int, quick: bool, work: Path, results: Results) -> None:
    """Fill in the rows."""
    workspace = await anyio.to_thread.run_sync(make_workspace, work)
    ours = find_agent("ours", workspace, work)
    assert ours is not None
    late = replace(ours, name="late", argv=(sys.executable, "-c", _AFTER_THE_ANSWER, *ours.argv[1:]))
    agents = [agent for agent in (ours, late) if agent.name in names]
    async with ScriptedApi() as api:
        api.pace_s = PACE_S
        with tempfile.TemporaryDirectory(prefix="early-", dir=work, ignore_cleanup_errors=True) as homes:
            for number in range(rounds):
                print(f"bench: early, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                pairs = [(agent, scenario) for agent in agents for scenario in SCENARIOS]
                for agent, scenario in random.sample(pairs, len(pairs)):
                    await _session(agent, scenario, 3 if quick else TURNS, api, workspace, Path(homes), results)
                    shutil.rmtree(workspace / "out", ignore_errors=True)


async def _session(
    agent: Agent, scenario: str, turns: int, api: ScriptedApi, workspace: Path, homes: Path, results: Results
) -> None:
    measure = SCENARIOS[scenario]
    try:
        await run_session(agent, api, turns_of(scenario, workspace, turns), workspace, homes / agent.name)
    except SessionFailed as exc:
        results.trouble(measure, agent.name, str(exc))
        return
    for seconds in overheads(api.seen):
        results.add(measure, agent.name, seconds)
