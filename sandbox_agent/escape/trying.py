"""Runs probes in a sandbox: several at a time where they do not disturb each other, the others alone and last."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import resources
from typing import Protocol

import anyio

from sandbox_agent.errors import SandboxError
from sandbox_agent.escape.catalogue import Probe
from sandbox_agent.escape.verdict import Result, Verdict, judge, opened
from sandbox_agent.sandboxes.base import ExecResult

AT_ONCE = 4
_BATCH_S = 120.0
_MAX_OUTPUT_BYTES = 1024 * 1024
_SH = """
breach() { echo "OPEN $*"; exit 0; }
closed() { echo "BLOCKED $*"; exit 0; }
need() { command -v "$1" >/dev/null 2>&1 || { echo "UNKNOWN $1 is missing"; exit 0; }; }
"""
_FIND_PYTHON = "command -v python3 || for p in /.agent-tools/bin/python3; do [ -x $p ] && echo $p; done"
_NOTHING_LEFT = """
import os, sys
chain, pid = set(), os.getpid()
while pid > 0 and pid not in chain:
    chain.add(pid)
    with open(f"/proc/{pid}/status", errors="replace") as file:
        pid = next(int(line.split()[1]) for line in file if line.startswith("PPid:"))
left = []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in chain:
        try:
            uid = os.stat(f"/proc/{name}").st_uid
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read()
            with open(f"/proc/{name}/stat", errors="replace") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if uid == os.getuid() and b"sandbox-agent" not in command and state != "Z":
            left.append(command[:60].replace(bytes(1), b" ").decode("utf-8", "replace"))
print("left: " + "; ".join(left) if left else "nothing left")
"""


class Runs(Protocol):
    """All that is needed of a sandbox here."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = _MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        ...


@dataclass(frozen=True, slots=True)
class Ground:
    """Where probes are run.

    `open` gives a started sandbox each time it is entered: a container that an attack has ended is replaced. `facts`
    are told to the programs (LIMIT_..., EXPECT_...). `bounded` is False where nothing would stop an unbounded attack.
    """

    open: Callable[[], AbstractAsyncContextManager[Runs]]
    facts: Mapping[str, str]
    emulated: bool = False
    bounded: bool = True


async def try_probes(
    probes: Sequence[Probe], ground: Ground, on_result: Callable[[Result], None] | None = None
) -> tuple[Result, ...]:
    """Every probe once; the results in the order of `probes`. `on_result` is told of each as it comes.

    Raises:
        SandboxError: no container can be had.
    """
    found: dict[str, Result] = {}
    tried = [probe for probe in probes if ground.bounded or not probe.unbounded]
    together = [probe for probe in tried if not probe.alone]
    alone = [probe for probe in tried if probe.alone]
    while together or alone:
        async with ground.open() as sandbox:
            async for result in _until_dead(_Trial(sandbox, ground), together, alone):
                found[result.probe.id] = result
                if on_result is not None:
                    on_result(result)
        together = [probe for probe in together if probe.id not in found]
        alone = [probe for probe in alone if probe.id not in found]
    return tuple(found[probe.id] for probe in probes if probe.id in found)


async def _until_dead(trial: _Trial, together: list[Probe], alone: list[Probe]) -> AsyncIterator[Result]:
    """Results until the container ends; the probe under which it ended has found an open way."""
    await trial.begin()
    for result in await _side_by_side(trial, together):
        yield result
        if trial.dead:
            break
    for probe in alone:
        if trial.dead:
            return
        yield await trial.run(probe)


async def _side_by_side(trial: _Trial, probes: list[Probe]) -> list[Result]:
    """Those in Python share a few processes to start from; what got no answer there is tried again by itself."""
    results: list[Result] = []
    many = [probe for probe in probes if probe.python is not None]
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def batch(members: list[Probe]) -> None:
        async with limiter:
            results.extend(await trial.run_batch(members))

    async def one(probe: Probe) -> None:
        async with limiter:
            if not trial.dead:
                results.append(await trial.run(probe))

    async with anyio.create_task_group() as group:
        for number in range(AT_ONCE):
            group.start_soon(batch, many[number::AT_ONCE])
    answered = {result.probe.id for result in results}
    async with anyio.create_task_group() as group:
        for probe in probes:
            if probe.id not in answered:
                group.start_soon(one, probe)
    return results


class _Trial:
    """One started sandbox and what is known of it."""

    def __init__(self, sandbox: Runs, ground: Ground) -> None:
        self._sandbox = sandbox
        self._ground = ground
        self._python = ""
        self.dead = False

    async def begin(self) -> None:
        found = await self._sandbox.exec(["sh", "-c", _FIND_PYTHON], timeout_s=20)
        self._python = found.stdout.decode("utf-8", "replace").split("\n")[0]

    async def run(self, probe: Probe) -> Result:
        """Never raises for what the probe does to the container."""
        started_s = time.monotonic()
        if probe.python is not None and not self._python:
            return Result(probe, Verdict.NONE, "python3 is missing in the image")
        try:
            if probe.before is not None:
                await self._exec([self._python, "-I", "-S", "-c", probe.before], probe.timeout_s)
            ended = await self._exec(self._argv(probe), probe.timeout_s)
            if probe.survive:
                return await self._survived(probe, started_s)
        except SandboxError as exc:
            self.dead = True
            return opened(probe, f"the container ended: {exc}", time.monotonic() - started_s)
        return judge(probe, ended, emulated=self._ground.emulated)

    async def run_batch(self, probes: list[Probe]) -> list[Result]:
        """Several, each in a process of its own; those that the call's end left without an answer are not among it."""
        if not probes or not self._python or self.dead:
            return []
        asked = json.dumps([[probe.id, probe.python, probe.timeout_s] for probe in probes]).encode()
        program = f"{_inside('driver')}\nmain({_inside('calls')!r})"
        try:
            ended = await self._exec([self._python, "-I", "-S", "-c", program], _BATCH_S, stdin=asked)
        except SandboxError:
            return []  # tried again by itself, the one that ends the container is known
        by_id = {probe.id: probe for probe in probes}
        answers = (answer_of(line) for line in ended.stdout.splitlines())
        return [
            judge(by_id[name], how, emulated=self._ground.emulated)
            for name, how in (one for one in answers if one is not None)
            if name in by_id
        ]

    async def _survived(self, probe: Probe, started_s: float) -> Result:
        """Whether the next call works soon, and finds nothing of the attack."""
        ended_s = time.monotonic()
        with anyio.move_on_after(probe.within_s):
            while True:
                # A call right after the runner's death may still be told of it; the one after that must work.
                said = await self._exec([self._python, "-I", "-S", "-c", _NOTHING_LEFT], probe.within_s)
                took_s = time.monotonic() - ended_s
                if said.exit_code == 0 and b"nothing left" in said.stdout:
                    return Result(
                        probe,
                        Verdict.CLOSED,
                        f"the next call worked after {took_s:.1f} s",
                        took_s + ended_s - started_s,
                    )
                if b"left: " in said.stdout:
                    text = said.stdout.decode("utf-8", "replace").strip()
                    return opened(probe, text, time.monotonic() - started_s)
        return opened(probe, f"no call worked within {probe.within_s:g} s", time.monotonic() - started_s)

    def _argv(self, probe: Probe) -> list[str]:
        if probe.sh is not None:
            return ["sh", "-c", _SH + probe.sh]
        return [self._python, "-I", "-S", "-c", f"{_inside('calls')}\n{probe.python}"]

    async def _exec(self, argv: list[str], timeout_s: float, stdin: bytes = b"") -> ExecResult:
        return await self._sandbox.exec(
            argv,
            stdin=stdin,
            env=dict(self._ground.facts),
            timeout_s=timeout_s,
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )


def _inside(name: str) -> str:
    return (resources.files(f"{__package__}.inside") / f"{name}.py").read_text("utf-8")


def answer_of(line: bytes) -> tuple[str, ExecResult] | None:
    """One line of the driver's; None for what is none: it comes from inside, so it may be anything."""
    try:
        fields = json.loads(line)
        duration_s = float(fields["duration_s"])
        if not math.isfinite(duration_s):
            return None
        ended = ExecResult(
            int(fields["code"]),
            str(fields["said"]).encode(),
            timed_out=bool(fields["timed_out"]),
            duration_s=duration_s,
        )
        return str(fields["id"]), ended
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None
