"""From the flags to the exit code: the streams, the signals, and the session between them."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent.cli.faults import say
from sandbox_agent.cli.sdk.options import Servers, servers_of, settings_of
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.frontends.sdk.driver import Driver
from sandbox_agent.frontends.sdk.driver_state import State
from sandbox_agent.frontends.sdk.incoming import listen
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.settings import Apply, SdkSettings
from sandbox_agent.frontends.sdk.wire import Wire
from sandbox_agent.frontends.summary import EXIT_BROKEN_PIPE, EXIT_CODES

LAST_LINES_S = 2.0
"""So long may the program take to read what was said last."""


def serve(flags: Mapping[str, Any]) -> int:
    """Serve a program over the standard streams; returns the exit code.

    Raises:
        UsageError: a flag cannot be used.
        ConfigError: a file that it names cannot be used.
    """
    with _servers(flags["mcp_config"]) as servers:
        settings = settings_of(flags, os.environ, servers)
        for note in settings.notes:
            say(note)
        return run_driver(settings)


def talk(config: RunConfig, *, apply: Apply) -> int:
    """The same for `sandbox-agent run --input stream-json`, whose exit codes are those of `run`."""
    return run_driver(SdkSettings(config=config, apply=apply), own_codes=True)


def run_driver(settings: SdkSettings, *, own_codes: bool = False) -> int:
    """Hold the conversation in an event loop of its own; returns the exit code: 1 for every error but with `own_codes`,
    which are those of the last turn's status."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else writes there must not come between the lines
    return anyio.run(partial(_run, settings, out, own_codes=own_codes))


@contextlib.contextmanager
def _servers(given: tuple[str, ...]) -> Iterator[Servers]:
    """The servers, those that were given as text in a file that only we can read: they may hold secrets."""
    servers = servers_of(given)
    if not servers.others:
        yield servers
        return
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-") as folder:
        path = Path(folder, "mcp.json")
        path.touch(mode=0o600)
        path.write_text(json.dumps({"mcpServers": servers.others}))
        yield servers._replace(files=(*servers.files, path))


async def _run(settings: SdkSettings, out: int, *, own_codes: bool) -> int:
    gc.freeze()  # what was imported stays; `main` had collecting off meanwhile
    gc.enable()
    lines = Lines(
        settings.session_id or settings.config.resume or "",
        partial=settings.partial,
        hook_events=settings.hook_events,
    )
    wire = Wire(0, out)
    state = State(wire, lines, settings)
    driver, stop = Driver(state, say), Stop()
    fault: SandboxAgentError | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop.watch, tasks)
        tasks.start_soon(wire.write)
        tasks.start_soon(wire.watch)
        with stop.open_scope() as scope:
            stop.interrupt = driver.interrupt
            tasks.start_soon(_end_when_gone, wire, stop)
            tasks.start_soon(listen, state, tasks)
            try:
                await driver.hold(tasks)
            except SandboxAgentError as exc:
                fault = exc
        cause = stop.cause or (signal.SIGINT if driver.interrupted else None)
        if own_codes and cause is not None and driver.owes_result:
            wire.send(lines.ended_by(cause.name))
        if not scope.cancelled_caught or cause is not None:
            with anyio.move_on_after(LAST_LINES_S):
                await wire.written()
        tasks.cancel_scope.cancel()
    if fault is not None:
        say(str(fault))
    if cause is not None:
        return EXIT_CODES["interrupted" if cause == signal.SIGINT else "terminated"]
    if wire.gone.is_set():
        return EXIT_BROKEN_PIPE
    if own_codes:
        return fault.exit_code if fault is not None else EXIT_CODES.get(driver.status, 1)
    return 1 if driver.errors or fault is not None else 0


async def _end_when_gone(wire: Wire, stop: Stop) -> None:
    """Nobody reads any more: nothing that is done is wanted."""
    await wire.gone.wait()
    stop.end()
