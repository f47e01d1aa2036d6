"""The loop part: agents run headless on scripted turns, and the API's stamps tell what each turn cost beside the model.

`python -m bench.loop` is the program that `bench` starts for this part and the overlap part; where it can (root, and an
engine on a unix socket) in a network namespace with loopback alone, so that no agent waits for the outside.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bench.agents import Agent, find_agent
from bench.overlap import measure_overlap
from bench.plan import Results
from bench.scripted_api import ScriptedApi, Turn
from bench.session import SessionFailed, overheads, run_session
from bench.workload import FILES_PER_FOLDER, FOLDERS, make_workspace, tree_file

SCENARIOS = ("read1", "read10", "bash1", "grep10", "write1")
TURNS = 7
"""Of a session. The first is not counted: it waits for the container, or fills caches."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the parent wants of this program."""

    loop: tuple[str, ...]
    overlap: bool
    rounds: int
    quick: bool
    work: str


def turns_of(scenario: str, workspace: Path, count: int) -> list[Turn]:
    """The scripted answers, then one without calls. No file and no pattern comes twice."""
    draw = random.randrange(FOLDERS * FILES_PER_FOLDER)

    def one(turn: int) -> Turn:
        places = [draw + 10 * turn + call for call in range(10)]
        match scenario:
            case "read1":
                return [("Read", {"file_path": f"{workspace}/{tree_file(places[0])}"})]
            case "read10":
                return [("Read", {"file_path": f"{workspace}/{tree_file(place)}"}) for place in places]
            case "bash1":
                return [("Bash", {"command": "true", "description": "Do nothing"})]
            case "grep10":
                numbers = [place % (FOLDERS * FILES_PER_FOLDER) for place in places]
                return [("Grep", {"pattern": f"unique_{number}_", "path": str(workspace)}) for number in numbers]
            case _:
                name = f"{workspace}/out/new_{turn}_{time.time_ns()}.txt"
                return [("Write", {"file_path": name, "content": "hello\n" * 50})]

    return [*(one(turn) for turn in range(count)), []]


async def measure_loop(asked: Asked, api: ScriptedApi, work: Path, results: Results) -> None:
    """Fill in the agents' rows: sessions of all agents and scenarios in a new random order each round."""
    workspace = await anyio.to_thread.run_sync(make_workspace, work)
    agents = []
    for name in asked.loop:
        agent = find_agent(name, workspace, work)
        if agent is None:
            results.absent[name] = "run bench/setup_peers.sh"
        else:
            agents.append(agent)
    with tempfile.TemporaryDirectory(prefix="homes-", dir=work, ignore_cleanup_errors=True) as homes:
        home = Path(homes)
        # An agent that cannot say a word is out: it would only fail in every row.
        agents = [agent for agent in agents if await _session(agent, "warm", api, [[]], workspace, home, results)]
        turns = 3 if asked.quick else TURNS
        for number in range(asked.rounds):
            print(f"bench: loop, round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
            pairs = [(agent, scenario) for agent in agents for scenario in SCENARIOS]
            for agent, scenario in random.sample(pairs, len(pairs)):
                script = turns_of(scenario, workspace, turns)
                await _session(agent, scenario, api, script, workspace, home, results)
                shutil.rmtree(workspace / "out", ignore_errors=True)


async def _session(
    agent: Agent, scenario: str, api: ScriptedApi, turns: Sequence[Turn], workspace: Path, homes: Path, results: Results
) -> bool:
    measure = f"turn_{scenario}" if scenario != "warm" else "loop_start"
    try:
        started = await run_session(agent, api, turns, workspace, homes / agent.name)
    except SessionFailed as exc:
        results.trouble(measure, agent.name, str(exc))
        return False
    if scenario == "warm":
        return True
    results.add("loop_start", agent.name, api.seen[0].arrived_s - started.monotonic_s)
    for seconds in overheads(api.seen):
        results.add(measure, agent.name, seconds)
    return True


def command_for(asked: Asked) -> list[str]:
    """The command that runs this program for the parent."""
    argument = json.dumps({field: getattr(asked, field) for field in Asked.__slots__})
    command = [sys.executable, "-m", "bench.loop", argument]
    remote = os.environ.get("DOCKER_HOST", "unix:").partition(":")[0] != "unix"
    if os.geteuid() != 0 or remote or not all(map(shutil.which, ("unshare", "ip"))):
        return command
    return ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


async def _main(asked: Asked) -> dict[str, Any]:
    results = Results()
    work = Path(asked.work)
    async with ScriptedApi() as api:
        if asked.loop:
            await measure_loop(asked, api, work, results)
        if asked.overlap:
            await measure_overlap(api, asked.rounds, work, results)
    return {
        "seconds": [[*key, samples] for key, samples in results.seconds.items()],
        "troubles": [[*key, text] for key, text in results.troubles.items()],
        "gaps": [[*key, text] for key, text in results.gaps.items()],
        "absent": results.absent,
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(anyio.run(_main, Asked(**{**given, "loop": tuple(given["loop"])}))))
