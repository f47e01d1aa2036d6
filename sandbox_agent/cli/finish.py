"""What follows a run: the changes are looked at, applied as asked, and what stays back is kept for `apply ID`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from sandbox_agent.cli.job import Job
from sandbox_agent.engine import acceptance
from sandbox_agent.engine.session import Session
from sandbox_agent.frontends import review
from sandbox_agent.frontends.review import NOTHING, Choice
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.base import ApplyOutcome

_ENDED_BY_ITSELF = ("done", "denied", "limit", "failed")
"""After any other end (a fault of sandbox or model, a signal) `--apply always` keeps the changes: nobody knows what
state they are in."""


async def finish(job: Job, session: Session) -> None:
    """Review and apply; nothing is applied without a yes or `--apply always`."""
    said = set(session.workspace.notes)
    await acceptance.ready(session, job.config)
    await session.changes()
    _hear(job, session)
    for note in session.workspace.notes:
        if note not in said:
            job.say(f"! {note}")
    if job.config.checks and job.summary.status in _ENDED_BY_ITSELF:
        await acceptance.check(session, job.config, partial(_hear, job, session))
    changes = job.summary.review.changes if job.summary.review else ()
    if not changes:
        if job.screen.view is not None:
            job.say("Nothing was changed.", "dim")
        _say_commits(job, session)
        return
    choice = await _choice(job, session, changes)
    if not choice.nothing:
        outcome = await session.apply(choice.paths, choice.hunks)
        _hear(job, session)
        if job.apply == "always" and session.workspace.mode != "bind":
            _say_dangers(job, changes, outcome)
        for path, reason in sorted(outcome.withheld.items()):
            job.say(f"not applied: {path} ({reason})")
    if job.summary.unapplied_files:
        kept(job, session.id)
    _say_commits(job, session)


def kept(job: Job, session_id: str) -> None:
    """Say where changes that were not applied are."""
    job.say(f"Not applied, and kept: sandbox-agent diff {session_id}   sandbox-agent apply {session_id}")


def _say_dangers(job: Job, changes: Sequence[JsonObject], outcome: ApplyOutcome) -> None:
    """Nobody has looked before they were applied: what can do something by itself is at least said aloud."""
    for change in changes:
        if change.get("danger") and change["path"] in outcome.applied:
            job.say(f"! applied, look at it: {change['path']}: {change['danger']}", "red")


def _say_commits(job: Job, session: Session) -> None:
    if session.workspace.commits:
        job.say(f"Commits made inside are kept: sandbox-agent export {session.id} --bundle FILE")


def _hear(job: Job, session: Session) -> None:
    """Pass on what the session said outside a run."""
    events = session.listen()
    with events:
        while True:
            try:
                job.feed(events.receive_nowait())
            except anyio.WouldBlock:
                break
    session.hang_up()


async def _choice(job: Job, session: Session, changes: Sequence[JsonObject]) -> Choice:
    if job.screen.output is None:
        lines = None if job.verbose else review.FILE_LINES
        review.show(job.screen.printer, changes, max_lines=lines, drifted=job.summary.drifted)
    if session.workspace.mode == "bind":
        return Choice(None)  # they are in the folder already; applying records that
    if job.apply == "always" and job.summary.failed_checks:
        job.say("Nothing is applied: --apply always takes only what has passed every check.", "yellow")
        return NOTHING
    if job.apply == "always":
        return Choice(None) if job.summary.status in _ENDED_BY_ITSELF else NOTHING
    if job.apply == "never":
        return NOTHING
    if job.screen.terminal is None:
        job.say("Nobody is there to ask what to apply (see --apply).", "yellow")
        return NOTHING
    return await review.choose(job.screen.terminal, changes)
