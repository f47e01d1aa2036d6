"""What a contender of the sandbox part is, and the loop that measures it: one JSON order a line in, one answer out.

Only the standard library of Python 3.11, because this runs in the environments of other projects. Times are taken here,
around the work alone; starting this process, its imports and the check of each result are outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

TOGETHER = 10
SMALL_BYTES = 10 * 1024
BIG_BYTES = 10 * 1024 * 1024
SMALL_FILES = [f"small{number}.txt" for number in range(TOGETHER)]
BIG_FILE = "big.txt"
NEEDLES = [f"needle_{number}_" for number in range(TOGETHER)]
"""Each is in exactly one of the files under `tree`."""


class Finished(NamedTuple):
    """How a command ended, and its standard output."""

    exit_code: int
    output: bytes


class Contender:
    """One way to run commands. `data` is where it sees the folder that the bench made, `host_data` where that lies."""

    data = "/workspace"

    def __init__(self, host_data: str) -> None:
        self.host_data = host_data

    async def start(self) -> None:
        """Make a session; done when a command can run."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End it; done when nothing of it runs any more."""
        raise NotImplementedError

    async def run(self, argv: Sequence[str]) -> Finished:
        """One command, in the contender's usual way."""
        raise NotImplementedError

    async def read(self, path: str) -> bytes:
        """One file: by the contender's own call where it has one, else by `cat`."""
        return (await self.run(["cat", path])).output

    async def run_all(self, argvs: Sequence[Sequence[str]]) -> list[Finished]:
        """Several commands at once."""
        return await asyncio.gather(*(self.run(argv) for argv in argvs))

    async def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """Several files at once."""
        return await asyncio.gather(*(self.read(path) for path in paths))


class Blocking(Contender):
    """A contender whose calls block. What is to run at once runs in threads; a single call pays for none."""

    def __init__(self, host_data: str) -> None:
        super().__init__(host_data)
        self._threads = ThreadPoolExecutor(TOGETHER)

    def start_now(self) -> None:
        """Make a session."""
        raise NotImplementedError

    def stop_now(self) -> None:
        """End it."""
        raise NotImplementedError

    def run_now(self, argv: Sequence[str]) -> Finished:
        """One command."""
        raise NotImplementedError

    async def start(self) -> None:
        """See `Contender.start`."""
        self.start_now()

    async def stop(self) -> None:
        """See `Contender.stop`."""
        self.stop_now()

    async def run(self, argv: Sequence[str]) -> Finished:
        """See `Contender.run`."""
        return self.run_now(argv)

    async def run_all(self, argvs: Sequence[Sequence[str]]) -> list[Finished]:
        """See `Contender.run_all`."""
        return list(self._threads.map(self.run_now, argvs))

    async def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """See `Contender.read_all`."""
        done = await self.run_all([["cat", path] for path in paths])
        return [finished.output for finished in done]


class WrongResult(Exception):
    """The contender did something else than it was asked to: its time would mean nothing."""


async def _timed(work: Awaitable[object]) -> tuple[float, object]:
    started = time.perf_counter()
    result = await work
    return time.perf_counter() - started, result


def _check(good: bool, what: str) -> None:
    if not good:
        raise WrongResult(what)


async def measure(contender: Contender, order: str) -> float:
    """Carry out one order; returns its seconds.

    Raises:
        WrongResult: the outcome is not what it must be.
    """
    data = contender.data
    smalls = [f"{data}/{name}" for name in SMALL_FILES]
    match order:
        case "start":
            return (await _timed(contender.start()))[0]
        case "stop":
            return (await _timed(contender.stop()))[0]
        case "command":
            seconds, finished = await _timed(contender.run(["true"]))
            _check(isinstance(finished, Finished) and finished.exit_code == 0, f"true: {finished}")
        case "read1":
            seconds, content = await _timed(contender.read(smalls[0]))
            _check(isinstance(content, bytes) and len(content) == SMALL_BYTES, "a file came incomplete")
        case "read10":
            seconds, contents = await _timed(contender.read_all(smalls))
            _check(isinstance(contents, list) and [len(c) for c in contents] == [SMALL_BYTES] * TOGETHER, "a cut file")
        case "grep10":
            seconds, many = await _timed(contender.run_all([["rg", "-l", n, f"{data}/tree"] for n in NEEDLES]))
            _check(isinstance(many, list) and all(_one_line(finished) for finished in many), f"rg: {many}")
        case "read10mb":
            seconds, content = await _timed(contender.read(f"{data}/{BIG_FILE}"))
            _check(isinstance(content, bytes) and len(content) == BIG_BYTES, "10 MB came incomplete")
        case _:
            raise WrongResult(f"unknown order {order}")
    return seconds


def _one_line(finished: Finished) -> bool:
    return finished.exit_code == 0 and finished.output.count(b"\n") == 1


async def _serve(kind: type[Contender]) -> None:
    contender = kind(sys.argv[1])
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        # Whatever a library prints must not look like an answer.
        os.dup2(2, 1)
        while line := await asyncio.to_thread(sys.stdin.readline):
            answer: dict[str, object]
            try:
                answer = {"seconds": await measure(contender, json.loads(line))}
            except Exception as exc:  # noqa: BLE001 -- a foreign library may raise anything; the table says it
                answer = {"error": f"{type(exc).__name__}: {exc}"[:300]}
            print(json.dumps(answer), file=answers, flush=True)


def serve(kind: type[Contender]) -> None:
    """Carry out the orders on standard input until it ends."""
    asyncio.run(_serve(kind))
    sys.stderr.flush()
    # Some libraries keep threads or stop their containers in __del__; all was stopped by order.
    os._exit(0)
