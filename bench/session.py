"""One headless run of an agent against the scripted API, and what its stamps say."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import anyio

from bench.agents import Agent
from bench.scripted_api import ScriptedApi, Seen, Turn

SESSION_S = 120.0


class SessionFailed(Exception):
    """An agent did not do what the script asked, so its times mean nothing."""


class Started(NamedTuple):
    """When the agent's process was started, on both clocks."""

    monotonic_s: float
    unix_s: float


async def run_session(
    agent: Agent,
    api: ScriptedApi,
    turns: Sequence[Turn],
    workspace: Path,
    home: Path,
    more_env: Mapping[str, str] | None = None,
) -> Started:
    """Run the agent to its end on the turns. What came is in `api.seen`.

    Raises:
        SessionFailed: it ended otherwise than it should.
    """
    api.load(turns)
    home.mkdir(exist_ok=True)
    with (home / "stderr.log").open("w+b") as log:
        started = Started(time.monotonic(), time.time())
        process = await anyio.open_process(
            agent.argv,
            cwd=workspace,
            env={**agent.environment(api.base_url, home), **(more_env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        with anyio.move_on_after(SESSION_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        log.seek(0)
        tail = log.read()[-300:].decode(errors="replace").strip()
    failed = [text for seen in api.seen for text in seen.failed]
    if process.returncode != 0 or len(api.seen) != len(turns) or failed:
        said = f"{len(api.seen)} of {len(turns)} requests, exit code {process.returncode}"
        raise SessionFailed(" ".join([said, *failed[:1], tail]))
    return started


def overheads(seen: Sequence[Seen]) -> list[float]:
    """Seconds from the last byte of each answer to the first byte of the next request, without the first turn."""
    return [after.arrived_s - before.answered_s for before, after in pairwise(seen[1:])]
