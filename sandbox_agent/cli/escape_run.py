"""What `escape-test` does: the probes in a session's container, and, where asked for, in others for comparison."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import click

from sandbox_agent.engine.placement import Placement, place
from sandbox_agent.engine.specimen import Specimen, scratch_folder, specimen
from sandbox_agent.escape.catalogue import SHAPES, Probe, choose, load_catalogue
from sandbox_agent.escape.trying import Ground, Runs, try_probes
from sandbox_agent.escape.verdict import Column, Result, holds, known
from sandbox_agent.frontends.escape_view import Report, document, show_list, show_report
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.policy.load import run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.endpoint import Endpoint, resolve_endpoint
from sandbox_agent.sandboxes.hardening import ENV, HOSTNAME
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.sandboxes.weakened import WeakenedSandbox, weaknesses

EXIT_OPEN = 1
MIB = 1024 * 1024

SMALL_LIMITS = {
    "LIMIT_MEMORY": 256 * MIB,
    "LIMIT_DISK": 128 * MIB,
    "LIMIT_TMP": 64 * MIB,
    "LIMIT_HOME": 64 * MIB,
    "LIMIT_SHM": 64 * MIB,
    "LIMIT_PIDS": 100,
    "LIMIT_NOFILE": 1024,
    "LIMIT_FILES": 100_000,
    "LIMIT_TMP_FILES": 100_000,
}
"""What is tried to be taken where nothing limits it: enough to show that, too little to hurt the machine."""

WATCHED = ("disk-ws", "inodes-ws")
WATCHED_ONLY = (
    "Only root can give a session a disk of its own here. The engine watches instead how much a session takes, and "
    "stops a call that takes more a moment later; this test is no session, so nobody watches it."
)


def list_probes(only: Sequence[str], *, as_json: bool) -> int:
    """Every probe, what it proves, and where it can be seen to fail.

    Raises:
        ConfigError: `only` names what is not there.
    """
    probes = choose(load_catalogue(), only)
    if as_json:
        fields = {"id", "group", "proves", "control", "control_note", "no_control", "residual", "gvisor"}
        click.echo(json.dumps([probe.model_dump(include=fields) for probe in probes], indent=1))
    else:
        show_list(Printer(make_console(sys.stdout)), probes)
    return 0


def run_escape_test(
    *, policy: str | None, only: Sequence[str], compare: bool, control: bool, as_json: bool, workspace_mode: str
) -> int:
    """Try, show, and return the exit code.

    Raises:
        ConfigError: the policy or `only` is wrong.
        SandboxError: no container can be had.
    """
    probes = choose(load_catalogue(), only)
    chosen = run_policy(policy)
    endpoint = resolve_endpoint(os.environ)
    report = anyio.run(partial(_try_all, chosen, probes, endpoint, workspace_mode, compare, control))
    if as_json:
        click.echo(json.dumps(document(report), indent=1))
    else:
        show_report(Printer(make_console(sys.stdout)), report)
    return 0 if holds(report.session.results) else EXIT_OPEN


async def _try_all(
    policy: Policy, probes: Sequence[Probe], endpoint: Endpoint, mode: str, compare: bool, control: bool
) -> Report:
    started_s = time.monotonic()
    with scratch_folder() as host:
        placement = await place(mode, host, endpoint, policy.sandbox.image)
        session = await _in_session(policy, probes, host, endpoint, placement)
        tried_s = time.monotonic() - started_s
        weak = _Weak(not placement.in_volume, policy.sandbox.image, endpoint)
        plain = await weak.column("plain", probes) if compare else None
        fired = await weak.controls(probes) if control else None
    return Report(tuple(probes), session, plain, fired, tried_s)


async def _in_session(
    policy: Policy, probes: Sequence[Probe], host: Path, endpoint: Endpoint, placement: Placement
) -> Column:
    about, own_disk = "", True
    facts: dict[str, str] = {}

    @asynccontextmanager
    async def opening() -> AsyncIterator[Runs]:
        nonlocal about, own_disk
        async with specimen(policy, host, endpoint, mode=placement.mode) as found:
            about = f"{found.info.isolation}; {placement.line}; policy {policy.name}"
            own_disk = found.own_disk
            facts.update(session_facts(found, policy.sandbox.disk_bytes))
            yield found.sandbox

    emulated = policy.sandbox.runtime.startswith("runsc")
    results = await try_probes(probes, Ground(opening, facts, emulated=emulated))
    if not own_disk:
        results = tuple(known(one, WATCHED_ONLY) if one.probe.id in WATCHED else one for one in results)
    return Column("session", about, results)


def session_facts(found: Specimen, disk_bytes: int) -> Mapping[str, str]:
    """What the programs are told of a session's container: its limits, and what they may find."""
    return {**_limits(found.spec, disk_bytes), **_expected()}


def _limits(spec: SandboxSpec, disk_bytes: int) -> dict[str, str]:
    limits = {
        "LIMIT_MEMORY": spec.memory_bytes,
        "LIMIT_DISK": disk_bytes,
        "LIMIT_TMP": min(spec.tmp_bytes, spec.memory_bytes // 2),
        "LIMIT_HOME": min(spec.home_bytes, spec.memory_bytes // 4),
        "LIMIT_SHM": spec.shm_bytes,
        "LIMIT_PIDS": spec.pids,
        "LIMIT_NOFILE": spec.nofile,
        # A file takes at least a block; file systems of such a size have room for fewer.
        "LIMIT_FILES": disk_bytes // 4096,
        "LIMIT_TMP_FILES": max(spec.tmp_files, spec.home_files),
    }
    return {name: str(value) for name, value in limits.items()}


def _expected() -> dict[str, str]:
    return {"EXPECT_HOSTNAME": HOSTNAME, "EXPECT_ENV": ",".join(ENV)}


class _Weak:
    """The weakened containers, each on a folder of its own where the engine sees our files."""

    def __init__(self, sees_files: bool, image: str, endpoint: Endpoint) -> None:
        self._sees_files = sees_files
        self._image = image
        self._endpoint = endpoint

    async def column(self, shape: str, probes: Sequence[Probe]) -> Column:
        """The probes in one kind."""
        facts = {**{name: str(value) for name, value in SMALL_LIMITS.items()}, **_expected()}
        ground = Ground(self._opening(shape), facts, bounded=False)
        return Column(shape, weaknesses(None)[shape].about, await try_probes(probes, ground))

    async def controls(self, probes: Sequence[Probe]) -> Column:
        """Each probe in the kind in which it must find an open way."""
        results: list[Result] = []
        for shape in SHAPES:
            wanted = [probe for probe in probes if probe.control == shape]
            if wanted:
                results += (await self.column(shape, wanted)).results
        return Column("control", "weakened containers, each probe in its own kind", tuple(results))

    def _opening(self, shape: str) -> Callable[[], AbstractAsyncContextManager[Runs]]:
        @asynccontextmanager
        async def opening() -> AsyncIterator[Runs]:
            name = f"escape{time.time_ns():x}"
            with scratch_folder() as host:
                kind = weaknesses(str(host) if self._sees_files else None)[shape]
                sandbox = WeakenedSandbox(kind, self._image, name, self._endpoint)
                try:
                    await sandbox.start()
                    yield sandbox
                finally:
                    await sandbox.close()

        return opening
