"""Replays a bundle and says what came of it."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path

import click

from sandbox_agent.cli.conduct import conduct, never_unencodable
from sandbox_agent.cli.job import Job, Screen
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.engine.frozen import open_frozen
from sandbox_agent.engine.laying_out import lay_out
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, ReplayMismatchError, SandboxAgentError
from sandbox_agent.events import RunFinished
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.difference import difference_as_json, difference_lines
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.records.bundle import Bundle, read
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.record import RECORD_NAME
from sandbox_agent.workspaces.removal import remove_tree

DIFFERS = ReplayMismatchError.exit_code


def replay(file: Path, *, frozen: bool, workspace: Path | None, network: bool, as_json: bool, verbose: bool) -> int:
    """The `replay` command. Returns the exit code.

    Raises:
        ConfigError, WorkspaceError: the bundle, or the folder, cannot be used; in JSON it is said, too.
    """
    never_unencodable()
    try:
        return _replay(file, frozen=frozen, workspace=workspace, network=network, as_json=as_json, verbose=verbose)
    except SandboxAgentError as fault:
        if as_json:
            _print({"file": str(file), "frozen": frozen, "agrees": None, "error": str(fault)})
        raise


def _replay(file: Path, *, frozen: bool, workspace: Path | None, network: bool, as_json: bool, verbose: bool) -> int:
    printer = Printer(make_console(sys.stderr if as_json or not sys.stdout.isatty() else sys.stdout))
    try:
        bundle = read(file)
        replaying = Replaying(bundle, frozen=frozen, network=network)
    except ReplayMismatchError as fault:
        return _report(printer, fault, {"file": str(file), "frozen": frozen}, as_json=as_json)
    with _folder(bundle, workspace, frozen=frozen) as folder:
        schema = bundle.lock.get("answer_schema")
        config = RunConfig(workspace=folder, model=replaying.model(None).name, answer_schema=schema)
        view = ConsoleView(printer, verbose=True) if verbose else None
        screen = Screen(None, view, printer, None)
        job = Job(config, replaying.task, "never", screen, RunSummary(), Stop(), verbose)
        code = conduct(job, partial(_frozen if frozen else _live, replaying))
    facts: JsonObject = {"file": str(file), "frozen": frozen, "steps": len(bundle.steps)}
    facts["not_pinned"] = bundle.lock["not_pinned"]
    if verbose:
        for line in bundle.lock["not_pinned"]:
            job.say(f"not pinned: {line}", "dim")
    if replaying.fault is None and not replaying.agreed and code == 0 and job.stop.cause is None:
        number = bundle.steps[-1].number
        replaying.fault = ReplayMismatchError(f"step {number}: the replay did not come to its end", step=number)
    if replaying.fault is not None:
        return _report(printer, replaying.fault, facts, as_json=as_json)
    if not replaying.agreed:
        if as_json:
            _print({**facts, "agrees": None, "error": job.summary.error})
        return code
    if as_json:
        _print({**facts, "agrees": True})
    else:
        how = "frozen" if frozen else "live"
        click.echo(f"The replay agrees ({how}): {replaying.tape.done} of {len(bundle.steps)} steps compared.")
    return 0


async def _frozen(replaying: Replaying, job: Job) -> None:
    async with open_frozen(replaying) as session:
        job.stop.interrupt = session.interrupt
        await _follow(replaying, job, session)


async def _follow(replaying: Replaying, job: Job, session: Session) -> None:
    """The run to its end. How it ends is told by the comparison, where that has come to a result."""
    async with aclosing(run(session, job.task)) as events:
        async for event in events:
            if not (isinstance(event, RunFinished) and (replaying.agreed or replaying.fault is not None)):
                job.feed(event)


async def _live(replaying: Replaying, job: Job) -> None:
    lock = replaying.bundle.lock
    approver = replaying.approve if lock["approver"] else None
    ask = replaying.ask if lock["ask"] else None
    folder: Path | None = None
    try:
        async with open_session(job.config, approver=approver, ask=ask, replay=replaying) as session:
            gc.freeze()
            gc.enable()
            folder = sessions_dir() / session.id
            session.unapplied = set()  # nobody wants what a replay changed
            session.fallback = lock["fallback"]
            job.stop.interrupt = session.interrupt
            await _follow(replaying, job, session)
    finally:
        if folder is not None and not (folder / RECORD_NAME).exists():
            remove_tree(folder.parent.resolve(), folder.name)


@contextmanager
def _folder(bundle: Bundle, workspace: Path | None, *, frozen: bool) -> Iterator[Path]:
    """The folder that the run begins with."""
    if workspace is not None or frozen:
        yield workspace or Path("/")
        return
    if bundle.tree is None:
        why = bundle.lock["base"].get("left_out") or "it is large; --record-tree keeps it"
        raise ConfigError(f"{bundle.path}: does not have the folder ({why}); name one that is as it was with -w DIR")
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-replay-") as parent:
        folder = Path(parent).resolve() / "workspace"
        folder.mkdir()
        lay_out(bundle.tree, bundle.blobs, folder)
        yield folder


def _report(printer: Printer, fault: ReplayMismatchError, facts: JsonObject, *, as_json: bool) -> int:
    if as_json:
        _print({**facts, "agrees": False, "difference": difference_as_json(fault)})
    else:
        printer.line(sanitise(f"sandbox-agent: {fault}"), "red")
        for line in difference_lines(fault):
            printer.line(sanitise(line))
    return DIFFERS


def _print(document: JsonObject) -> None:
    click.echo(json.dumps(document, ensure_ascii=True))
