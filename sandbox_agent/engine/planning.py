"""The permission mode of a session while it runs: plan mode, which the model enters by itself and a person ends, and
changes by the person. Every change is an event, and the model is told what it has to know of it.
"""

from __future__ import annotations

from typing import Literal

from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.events import ModeChanged
from sandbox_agent.prompts import prompt
from sandbox_agent.types import Mode


class Planning:
    """The `PlanDesk` of a session's first agent."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before = Mode.DEFAULT

    @property
    def planning(self) -> bool:
        return self._session.mode is Mode.PLAN

    def enter(self) -> None:
        if not self.planning:
            self.begin_from(self._session.mode)
            _change(self._session, Mode.PLAN, "model")

    def leave(self) -> str:
        # A session that was started in plan mode has no mode before it: then everything that changes something is
        # asked, or allowed by rules.
        if self.planning:
            _change(self._session, self._before, "person")
        return self._session.mode.value

    def go_on(self) -> None:
        """Be in plan mode as the session was when it ended; what it goes back to is the mode of this run."""
        self.begin_from(self._session.mode)
        self._session.mode = Mode.PLAN

    def begin_from(self, mode: Mode) -> None:
        """Plan mode, however it began, leads back to this."""
        if mode is not Mode.PLAN:
            self._before = mode


def choose(session: Session, mode: Mode) -> None:
    """The person wants another mode. What that means for planning the model is told with the next request."""
    before = session.mode
    if mode is before:
        return
    _change(session, mode, "person")
    if isinstance(session.ctx.plan, Planning):
        session.ctx.plan.begin_from(before)
    if mode is Mode.PLAN:
        session.queue.put(prompt("engine/plan_mode"), Priority.NEXT, wakes=False)
    elif before is Mode.PLAN:
        session.queue.put(prompt("engine/plan_mode_off").format(mode=mode.value), Priority.NEXT, wakes=False)


def told_at_start(mode: Mode) -> tuple[str, ...]:
    """What the model is told of the mode that a session starts in."""
    return (prompt("engine/plan_mode"),) if mode is Mode.PLAN else ()


def _change(session: Session, mode: Mode, by: Literal["model", "person"]) -> None:
    before, session.mode = session.mode, mode
    session.emit(ModeChanged(agent_id=session.agent_id, mode=mode.value, before=before.value, by=by))
