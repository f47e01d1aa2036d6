"""From a job to its exit code, whatever happens: faults and signals become the status of its summary."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TextIO, cast

import anyio

from sandbox_agent.cli.faults import Terminated, machine_fault
from sandbox_agent.cli.finish import kept
from sandbox_agent.cli.job import Job
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.frontends.summary import EXIT_BROKEN_PIPE, status_of

Body = Callable[[Job], Awaitable[None]]


def never_unencodable() -> None:
    """A terminal of another encoding must not end a run: what it cannot show becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        cast(io.TextIOWrapper, stream).reconfigure(errors="backslashreplace")


def conduct(job: Job, body: Body) -> int:
    """Do the job in an event loop of its own, say what its view has not said, and close its output.

    Returns:
        The exit code.
    """
    try:
        anyio.run(partial(_run, body), job)
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
    code = job.summary.exit_code
    if job.screen.output is not None and not job.reader_gone:
        try:
            job.screen.output.close(job.summary)
        except BrokenPipeError:
            job.reader_gone = True
        except OSError as exc:
            refused = machine_fault(exc)
            if refused is None:
                raise
            job.say(f"sandbox-agent: stdout cannot be written: {refused}", "red")
            _write_no_more(sys.stdout)
            return code or 1
    if not job.reader_gone:
        return code
    _write_no_more(sys.stdout, sys.stderr)
    # A terminal that was closed says so by a signal, too.
    return EXIT_BROKEN_PIPE if job.stop.cause is None else code


def _write_no_more(*streams: TextIO) -> None:
    """What is still buffered would raise once more when the interpreter flushes at its end."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


async def _run(body: Body, job: Job) -> None:
    """A `SandboxAgentError` and a signal become the status of the summary; nothing of the sort is raised."""
    async with anyio.create_task_group() as group:
        await group.start(job.stop.watch, group)
        try:
            with job.stop.open_scope():
                await body(job)
        except SandboxAgentError as exc:
            job.summary.end(status_of(exc), str(exc))
        group.cancel_scope.cancel()
    _explain_end(job)


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
        for line in (*summary.resources.lines(), *summary.network.lines()):
            job.say(line, "dim")
    if summary.record_head is not None and job.screen.view is not None:
        job.say(f"record head {summary.record_head}", "dim")
