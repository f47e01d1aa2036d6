"""One chat: opens the session, lets the person talk, reviews, applies, and comes to an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from sandbox_agent.cli.conduct import conduct, never_unencodable
from sandbox_agent.cli.execute import config_of
from sandbox_agent.cli.finish import finish
from sandbox_agent.cli.job import Apply, Job, Screen
from sandbox_agent.cli.job_reports import wanted_reports, write_reports
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import state_dir
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, SandboxAgentError
from sandbox_agent.frontends.approve import ConsoleApprover
from sandbox_agent.frontends.chat import Chat
from sandbox_agent.frontends.chat_history import HISTORY_FILE, ChatHistory
from sandbox_agent.frontends.chat_screen import ChatScreen
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.questions import ConsoleQuestions
from sandbox_agent.frontends.summary import RunSummary, status_of
from sandbox_agent.tools.report_findings import NAME as FINDINGS


def chat(
    message: str | None, *, apply: Apply | None, verbose: bool, report: tuple[str, ...] = (), **options: Any
) -> int:
    """The `chat` command; `options` are those of `config_of`. Returns the exit code.

    Raises:
        ConfigError: there is no terminal to talk at, or a report cannot be written.
    """
    check_terminal(os.environ)
    reports = wanted_reports(report)
    if "sarif" in reports:
        options["allow"] = (*options["allow"], FINDINGS)
    never_unencodable()
    history = ChatHistory(state_dir() / HISTORY_FILE)
    line = ChatScreen(sys.stdout, sys.stdin.fileno(), history=history)
    screen = Screen(None, ConsoleView(line.printer, verbose=verbose), line.printer, line)
    how = apply or "ask"
    summary = RunSummary(changes_expected=how == "always")
    job = Job(config_of(**options), message or "", how, screen, summary, Stop(), verbose)
    code = conduct(job, partial(_session, line, history))
    return write_reports(job, reports, code) if reports else code


def check_terminal(environ: Mapping[str, str]) -> None:
    """Raises ConfigError: nobody can write here, or the terminal can do nothing but print."""
    instead = "for a task without one: sandbox-agent run -p TASK"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"a chat needs a terminal for what you write and what you see; {instead}")
    if environ.get("TERM", "dumb") in ("dumb", ""):
        raise ConfigError(f"a chat needs a terminal that can move its cursor, and TERM says it cannot; {instead}")


async def _session(screen: ChatScreen, history: ChatHistory, job: Job) -> None:
    session: Session | None = None
    try:
        async with open_session(job.config, approver=ConsoleApprover(screen), ask=ConsoleQuestions(screen)) as session:
            gc.freeze()  # what was imported stays; `main` had collecting off meanwhile
            gc.enable()
            session.background_wait_s = None  # what runs in the background tells of its end, and the person is here
            talking = Chat(session, screen, history, job.feed, verbose=job.verbose)
            job.stop.interrupt = talking.stop
            await talking.hold(job.task or None)
            job.stop.interrupt = None
            if talking.interrupted:
                job.summary.end("interrupted", None)
            if job.stop.cause is None:
                await finish(job, session)
                _settle(job.summary, session.fault)
    finally:
        if session is not None:
            job.summary.record_head = session.tape.head


def _settle(summary: RunSummary, fault: SandboxAgentError | None) -> None:
    """How a chat ended whose last run does not say it: the sandbox was lost while nothing ran; or the person said
    nothing, or stopped the agent and left then, and has what they wanted."""
    if fault is not None and summary.status != status_of(fault):
        summary.end(status_of(fault), str(fault))
    elif summary.fault_status is None and (summary.finished is None or summary.finished.status == "interrupted"):
        summary.end("done", None)
