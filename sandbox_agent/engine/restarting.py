"""A container that had to be started again is empty but for the workspace: the person and every agent are told.

An agent hears of it with the result of the call in which it happened, or else of its next one.
"""

from __future__ import annotations

from sandbox_agent.engine.session import Session
from sandbox_agent.events import Notice
from sandbox_agent.prompts import prompt

NOTICE = (
    "the container had to be started again, because nothing less ended what ran in it: every process ended, files in "
    "/tmp and the home folder are gone, those in the workspace are as they were left"
)


def from_now_on(session: Session) -> None:
    """What happened before an agent's first call is no news to it."""
    if session.ctx.restarts_told is None:
        session.ctx.restarts_told = session.sandbox.restarts


def news(session: Session) -> tuple[str, ...]:
    """What the agent has to be told with the call that has just ended; the person is told at the same time."""
    restarts = session.sandbox.restarts
    if restarts == session.ctx.restarts_told:
        return ()
    session.ctx.restarts_told = restarts
    session.emit(Notice(agent_id=session.agent_id, level="warning", text=NOTICE))
    return (prompt("engine/sandbox_restarted").strip(),)
