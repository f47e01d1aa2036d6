"""The sandbox part: every contender is a process that keeps a session open and carries out one order at a time.

A round starts all sessions, gives every order to all contenders in a new random order each time, and ends the sessions.
So a burst of foreign load hits all of them alike, and the ratios hold where the times do not.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from bench.plan import Results
from bench.workload import make_data

ROOT = Path(__file__).resolve().parent.parent
ORDER_S = 120.0
REPEATS = {"command": 8, "read1": 8, "read10": 4, "grep10": 2, "read10mb": 2}
"""How often a round gives each order."""

SESSIONLESS = ("host",)


@dataclass(slots=True)
class Child:
    """A contender's process. `lost` says why it is not asked any more."""

    name: str
    process: Process
    answers: BufferedByteReceiveStream
    lost: str | None = None

    async def order(self, order: str) -> float | str:
        """Seconds, or what went wrong."""
        if self.lost is not None:
            return self.lost
        assert self.process.stdin is not None
        try:
            with anyio.fail_after(ORDER_S):
                await self.process.stdin.send(json.dumps(order).encode() + b"\n")
                answer = json.loads(await self.answers.receive_until(b"\n", 65536))
        except TimeoutError:
            self.lost = f"no answer to {order} within {ORDER_S:.0f} s"
            return self.lost
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
            self.lost = f"its process ended at {order}"
            return self.lost
        return float(answer["seconds"]) if "seconds" in answer else str(answer["error"])


def command_of(name: str, work: Path) -> list[str] | None:
    """How a contender is started; None where its environment is not installed."""
    own = [sys.executable, "-m"]
    match name:
        case "ours":
            return [*own, "bench.peers.ours"]
        case "exec":
            return [*own, "bench.peers.ours", "--exec"]
        case "host":
            return [*own, "bench.peers.host"]
        case "docker":
            return [*own, "bench.peers.docker_cli"] if shutil.which("docker") else None
        case _:
            python = work / f"v-{name}" / "bin" / "python"
            return [str(python), "-m", f"bench.peers.{name}"] if python.exists() else None


async def measure_sandbox(names: Sequence[str], rounds: int, quick: bool, work: Path, results: Results) -> None:
    """Fill in the sandbox rows for the contenders named."""
    data = await anyio.to_thread.run_sync(make_data, work)
    orders = list(REPEATS)
    if shutil.which("rg") is None:
        results.gaps["grep10", "host"] = "no rg on this host"
    async with AsyncExitStack() as stack:
        children = []
        for name in names:
            command = command_of(name, work)
            if command is None:
                results.absent[name] = "install docker" if name == "docker" else "run bench/setup_peers.sh"
                continue
            children.append(
                await stack.enter_async_context(_child(name, [*command[:3], str(data), *command[3:]], work))
            )
        for number in range(rounds):
            print(f"bench: sandbox, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            await _round(children, orders, 1 if quick else None, results)


@asynccontextmanager
async def _child(name: str, command: list[str], work: Path) -> AsyncIterator[Child]:
    logs = work / "logs"
    logs.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (logs / f"{name}.log").open("wb") as log:
        async with await anyio.open_process(command, cwd=work, env=env, stderr=log) as process:
            assert process.stdout is not None
            child = Child(name, process, BufferedByteReceiveStream(process.stdout))
            try:
                yield child
            finally:
                assert process.stdin is not None
                with anyio.CancelScope(shield=True):
                    await child.order("stop")
                    await process.stdin.aclose()
                    with anyio.move_on_after(10.0):
                        await process.wait()
                if process.returncode is None:
                    process.kill()


async def _round(children: Sequence[Child], orders: Sequence[str], repeats: int | None, results: Results) -> None:
    open_children = [child for child in _shuffled(children) if await _keep(child, "start", results)]
    for child in open_children:
        for order in orders:
            await child.order(order)  # the first of each pays for caches and lazy imports
    queue = [order for order in orders for _ in range(repeats or REPEATS[order])]
    random.shuffle(queue)
    for order in queue:
        for child in _shuffled(open_children):
            if (order, child.name) not in results.troubles and (order, child.name) not in results.gaps:
                await _keep(child, order, results)
    for child in _shuffled(open_children):
        await _keep(child, "stop", results)


async def _keep(child: Child, order: str, results: Results) -> bool:
    outcome = await child.order(order)
    if isinstance(outcome, str):
        results.trouble(order, child.name, outcome)
        return False
    if child.name not in SESSIONLESS or order not in ("start", "stop"):
        results.add(order, child.name, outcome)
    return True


def _shuffled(children: Sequence[Child]) -> list[Child]:
    return random.sample(children, len(children))
