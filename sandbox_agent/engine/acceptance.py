"""Acceptance checks: the person's own commands, run on what a run came to, after its agent has stopped.

Each check has a container of its own, with a fresh home, a fresh /tmp, no network, and a fresh copy of the tree: what
the agent left outside of the tree is not there, nor what another check did, and the tree that is reviewed and applied
is never touched. The tree itself is the agent's work, so what a check loads from it (a conftest.py, a Makefile, git's
hooks) is, too: `RunConfig.check_files` names what is taken from the folder as it was before the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.to_thread

from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.container import last_start, settings_of, spec_of
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.placement import AUTO, place, trial_folder
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.stage import late_sandbox, volume_name
from sandbox_agent.errors import ConfigError, SandboxAgentError, SandboxStartError, WorkspaceError
from sandbox_agent.events import CheckFinished, CheckStarted, Event, Notice
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.base import KIB, Sandbox
from sandbox_agent.sandboxes.endpoint import Endpoint, resolve_endpoint
from sandbox_agent.workspaces.mixing import mix, patterns
from sandbox_agent.workspaces.opening import create
from sandbox_agent.workspaces.record import Record
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Steps

KEPT_BYTES = 64 * KIB
"""Of a check's output, while it runs."""

TAIL_CHARS = 8_000
"""Of it, for people and the record: the end says what failed."""

START_S = 120.0
"""For the container and its tree, on top of the time of the check itself."""

LONGEST_S = 24 * 3600
"""A check may take."""

SHOWN_PATHS = 1_000

ENVIRONMENT = MappingProxyType(
    {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": "/dev/null",
        "GIT_CONFIG_KEY_1": "core.fsmonitor",
        "GIT_CONFIG_VALUE_1": "false",
    }
)
"""A hook of the agent's in `.git` does not run, nor its monitor. Filters and `diff.external` of its `.git/config`
would: nothing turns those off."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """What every check runs on: the last step of a session, and the paths that are to be as in its first."""

    session_id: str
    state: Path
    steps: Steps
    step: int
    files: tuple[str, ...]

    def lay_out(self, folder: Path) -> tuple[str, ...]:
        """Let the workspace of a state folder begin with it; returns the paths that are from before the run."""
        wanted = Steps(folder / CHECKPOINTS_NAME)
        self.steps.share(self.step, wanted)
        if not self.files:
            return ()
        now = self.steps.load(self.step)
        first = next(step.number for step in self.steps.headers() if step.workspace == now.step.workspace)
        mixed = mix(now.snapshot.nodes, self.steps.load(first).snapshot.nodes, patterns(self.files))
        if mixed.paths:
            wanted.amend(mixed.nodes, mixed.removed)
        return mixed.paths


def refuse_bad(config: RunConfig) -> None:
    """Raises ConfigError: the checks cannot be what somebody meant. Said before a run, not after it."""
    for command in config.checks:
        if not command.strip() or "\0" in command or len(command.encode()) > 100 * KIB:
            raise ConfigError("--check: give a command of at most 100 KiB, such as --check 'pytest -q'")
    if not 0 < config.check_timeout_s <= LONGEST_S:
        raise ConfigError(f"--check-timeout {config.check_timeout_s:g}: give seconds, above 0 and up to {LONGEST_S}")
    if config.check_files and not config.checks:
        raise ConfigError("--check-files: there is no --check that they could be for")
    try:
        patterns(config.check_files)
    except WorkspaceError as error:
        raise ConfigError(f"--check-files {error}") from error


async def ready(session: Session, config: RunConfig) -> None:
    """Before `Session.changes`, where checks follow: a run may end before its first checkpoint is taken.

    Raises:
        SandboxError: the sandbox could not be started.
    """
    if config.checks and session.fault is None:
        await session.sandbox.start()
        if session.checkpoints is not None:
            await session.checkpoints.settled()


async def check(
    session: Session, config: RunConfig, tell: Callable[[], None] = lambda: None
) -> tuple[CheckFinished, ...]:
    """Run the checks of a run, one after the other, and tell of each; `tell` is called whenever there is news. Comes
    after `ready` and `Session.changes`.

    A check that could not be run has not passed; its event says why.
    """
    found = []
    for number, command in enumerate(config.checks, start=1):
        started_s = time.monotonic()
        session.emit(CheckStarted(number=number, count=len(config.checks), command=command))
        tell()
        try:
            event = await _check(session, config, command)
        except (SandboxAgentError, OSError) as error:
            event = CheckFinished(number=0, command=command, exit_code=None, duration_s=0.0, error=str(error))
        event = replace(event, number=number, duration_s=time.monotonic() - started_s)
        session.emit(event)
        tell()
        found.append(event)
    return tuple(found)


async def _check(session: Session, config: RunConfig, command: str) -> CheckFinished:
    """One check from nothing to the end.

    Raises:
        WorkspaceError: the tree cannot be had, as where the session has no checkpoints.
        SandboxError: no container can be had, or it died.
    """
    tree = _tree(session, config.check_files)
    endpoint = resolve_endpoint(os.environ)
    started = await anyio.to_thread.run_sync(last_start, tree.state)
    settings = replace(settings_of(started) if started is not None else session.policy.sandbox, allow_hosts=())
    async with trial_folder(endpoint, settings.image) as folder:
        from_base = await anyio.to_thread.run_sync(tree.lay_out, folder)

        def tell(event: Event) -> None:
            if isinstance(event, Notice):
                session.emit(replace(event, text=f"check {command!r}: {event.text}"))

        async with _container(session, folder, settings, endpoint, config.check_timeout_s, tell) as sandbox:
            ended = await sandbox.exec(
                ["bash", "--noprofile", "--norc", "-c", command],
                env=ENVIRONMENT,
                timeout_s=config.check_timeout_s,
                max_output_bytes=KEPT_BYTES,
                merge_stderr=True,
            )
    return CheckFinished(
        number=0,
        command=command,
        exit_code=None if ended.timed_out else ended.exit_code,
        duration_s=ended.duration_s,
        output=session.secrecy.redactor.text(ended.stdout.decode("utf-8", "replace"))[-TAIL_CHARS:],
        output_bytes=ended.stdout_bytes,
        timed_out=ended.timed_out,
        step=tree.step,
        from_base=from_base[:SHOWN_PATHS],
    )


def _tree(session: Session, files: tuple[str, ...]) -> _Tree:
    checkpoints = session.checkpoints
    if checkpoints is None or checkpoints.current is None:
        raise WorkspaceError("this session has no checkpoints, and a check runs on the tree of the last one")
    state = sessions_dir() / session.id
    return _Tree(session.id, state, checkpoints.steps, checkpoints.current.number, files)


@asynccontextmanager
async def _container(
    session: Session,
    folder: Path,
    settings: SandboxSettings,
    endpoint: Endpoint,
    timeout_s: float,
    tell: Callable[[Event], None],
) -> AsyncIterator[Sandbox]:
    """A container on a workspace of its own that has the tree, and nothing else in it that runs."""
    record = await anyio.to_thread.run_sync(Record.load, sessions_dir() / session.id)
    wanted = AUTO if record.mode == "bind" else record.mode
    placement = await place(wanted, record.host, endpoint, settings.image)
    make = partial(
        create,
        placement.mode,
        record.host,
        folder,
        masks=record.masks or session.policy.sandbox.masks,
        view=viewer(folder.name, endpoint),
        volume=volume_name(folder) if placement.in_volume else "",
        engine=endpoint.url,
        disk_bytes=record.disk_bytes or settings.disk_bytes,
        own_disk=placement.own_disk,
    )
    workspace = await anyio.to_thread.run_sync(make)
    spec = replace(spec_of(workspace, folder, settings), lifetime_s=round(timeout_s + START_S))
    sandbox = late_sandbox(spec, endpoint, workspace, secrecy=Secrecy())
    try:
        await sandbox.start()
        checkpoints = Checkpoints(sandbox, workspace, folder, emit=tell, last_seq=lambda: -1)
        await checkpoints.begin()
        if not checkpoints.begun:
            raise SandboxStartError("the container for the check ended before it had the tree")
        await checkpoints.aclose()
        yield sandbox
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.close()
            await anyio.to_thread.run_sync(workspace.release)
