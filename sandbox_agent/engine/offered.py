"""The tools that need more than a container: somebody to ask, a network, or a reader of what they say. Where that is
missing they are not shown to the model, and a call of one all the same is told why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from sandbox_agent.engine.child import without
from sandbox_agent.engine.planning import Planning
from sandbox_agent.engine.session import Session
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.questions import Ask, Question, Reply
from sandbox_agent.tools.report_findings import NAME as FINDINGS
from sandbox_agent.types import Mode


def attach(session: Session, *, ask: Ask | None, opens: Callable[[str, int], bool] | None, planned: bool) -> None:
    """Give a new session's first agent what these tools work with, and take out those that cannot work.

    Findings are wanted where an allow rule names their tool.

    Args:
        session: not used yet.
        ask: who answers the model's own questions.
        opens: whether the network's gate lets a host and port pass; None: it is closed.
        planned: the session goes on from plan mode.
    """
    asked = session.mode is not Mode.DONT_ASK
    if ask is not None and asked:
        session.ctx.ask = _in_turn(ask, session.rights.asking)
    else:
        session.pool = without(session.pool, {"AskUserQuestion"}, prompt("engine/nobody_to_ask"))
    if session.approver is None or not asked or session.policy.loosest_mode is Mode.PLAN:
        session.pool = without(session.pool, {"EnterPlanMode", "ExitPlanMode"}, prompt("engine/nobody_approves"))
    desk = Planning(session)
    session.ctx.plan = desk
    if planned:
        desk.go_on()
    if not any(rule.tool == FINDINGS for rule in session.policy.rules.allow):
        session.pool = without(session.pool, {FINDINGS}, prompt("engine/findings_not_wanted"))
    if opens is not None:
        session.ctx.opens = opens
    else:
        session.pool = without(session.pool, {"WebFetch"}, prompt("engine/network_closed"))


def _in_turn(ask: Ask, asking: anyio.Lock) -> Ask:
    """One question at a time, whoever asks: what the person answers is to what they were asked last."""

    async def in_turn(questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        async with asking:
            return await ask(questions, agent_id=agent_id)

    return in_turn
