"""Runs one task: opens the session, feeds its events to a front end, reviews, applies, and comes to an exit code."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import cast

import anyio

from sandbox_agent.cli.faults import Terminated, machine_fault
from sandbox_agent.cli.finish import finish, kept
from sandbox_agent.cli.job import Apply, Job, Screen, make_screen
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import Event
from sandbox_agent.frontends.approve import ConsoleApprover
from sandbox_agent.frontends.headless import OutputFormat
from sandbox_agent.frontends.questions import ConsoleQuestions
from sandbox_agent.frontends.summary import EXIT_BROKEN_PIPE, RunSummary, status_of
from sandbox_agent.types import Mode


def run_task(
    task: str,
    *,
    stdin_is_task: bool,
    workspace: Path,
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    model: str,
    image: str | None,
    workspace_mode: str,
    apply: Apply | None,
    max_turns: int | None,
    max_tokens: int | None,
    max_cost_usd: float | None,
    timeout_s: float | None,
    project_instructions: bool | None,
    headless: bool,
    output: OutputFormat | None,
    resume: str | None,
    verbose: bool,
) -> int:
    """The `run` command; returns the exit code."""
    config = RunConfig(
        workspace=workspace,
        model=model,
        policy=policy,
        mode=Mode(mode) if mode else None,
        allow=allow,
        deny=deny,
        image=image,
        workspace_mode=workspace_mode,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        timeout_s=timeout_s,
        project_instructions=project_instructions,
        resume=resume,
    )
    wanted = output or ("text" if headless else None)
    apply = apply or ("never" if wanted else "ask")
    return start(config, task, apply=apply, output=wanted, stdin_is_task=stdin_is_task, verbose=verbose)


def start(
    config: RunConfig,
    task: str,
    *,
    apply: Apply,
    output: OutputFormat | None = None,
    stdin_is_task: bool = False,
    verbose: bool = False,
    watch: Callable[[Event], None] | None = None,
    screen: Screen | None = None,
) -> int:
    """Run a task in this process; returns the exit code.

    `output` None is for people, on a terminal or in a pipe. `watch` sees every event besides. `screen` is where it
    shows itself, in place of our own streams.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal of another encoding must not end a run: what it cannot show becomes an escape.
        cast(io.TextIOWrapper, stream).reconfigure(errors="backslashreplace")
    if screen is None:
        screen = make_screen(output, stdin_is_task=stdin_is_task, verbose=verbose)
    job = Job(config, task, apply, screen, RunSummary(changes_expected=apply == "always"), Stop(), verbose, watch)
    try:
        anyio.run(_run, job)
    except (Terminated, KeyboardInterrupt) as exc:
        # Between the start of the event loop and its own handlers; nothing of the session was open.
        number = signal.SIGTERM if isinstance(exc, Terminated) else signal.SIGINT
        _end_by(job, number)
    except BaseException as exc:
        refused = machine_fault(exc)
        if refused is not None:
            job.summary.end("failed", refused)
            _explain_end(job)
            return _close(job)
        # A fault of ours: its trace goes to stderr, and stdout still carries what was promised.
        job.summary.end("failed", f"{type(exc).__name__}: {exc}")
        _close(job)
        raise
    return _close(job)


def _close(job: Job) -> int:
    if job.screen.output is not None and not job.reader_gone:
        try:
            job.screen.output.close(job.summary)
        except BrokenPipeError:
            job.reader_gone = True
    if not job.reader_gone:
        return job.summary.exit_code
    # What is still buffered would raise once more when the interpreter flushes at its end.
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())
    return EXIT_BROKEN_PIPE


async def _run(job: Job) -> None:
    """A `SandboxAgentError` and a signal become the status of the summary; nothing of the sort is raised."""
    async with anyio.create_task_group() as group:
        await group.start(job.stop.watch, group)
        try:
            with job.stop.open_scope():
                await _session(job)
        except SandboxAgentError as exc:
            job.summary.end(status_of(exc), str(exc))
        group.cancel_scope.cancel()
    _explain_end(job)


async def _session(job: Job) -> None:
    terminal = job.screen.terminal
    approver = ConsoleApprover(terminal) if terminal is not None else None
    ask = ConsoleQuestions(terminal) if terminal is not None else None
    session: Session | None = None
    try:
        async with open_session(job.config, approver=approver, ask=ask) as session:
            gc.freeze()  # what was imported stays; `main` had collecting off meanwhile
            gc.enable()
            job.stop.interrupt = session.interrupt
            async with aclosing(run(session, job.task)) as events:
                async for event in events:
                    job.feed(event)
            job.stop.interrupt = None
            if job.stop.cause is None:
                await finish(job, session)
    finally:
        if session is not None:
            job.summary.record_head = session.tape.head


def _end_by(job: Job, number: signal.Signals) -> None:
    job.summary.end("interrupted" if number == signal.SIGINT else "terminated", f"ended by {number.name}")


def _explain_end(job: Job) -> None:
    """What the view has not said: a fault outside the run, a signal, the error of a headless run."""
    cause, summary = job.stop.cause, job.summary
    if cause is not None:
        _end_by(job, cause)
    if summary.error is not None and (summary.fault is not None or job.screen.view is None):
        job.say(f"sandbox-agent: {summary.error}", "red")
    if cause is not None and summary.started is not None:
        kept(job, summary.started.session_id)
    if job.screen.view is not None:
        for line in summary.network.lines():
            job.say(line, "dim")
    if summary.record_head is not None and job.screen.view is not None:
        job.say(f"record head {summary.record_head}", "dim")
