"""What becomes of decisions: in the record, in what a run counts, and in what the person said for longer than once."""

from __future__ import annotations

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.requests import digest
from sandbox_agent.engine.scheduler import Call
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import Notice, PermissionAsked, PermissionDecided
from sandbox_agent.types import Decision, PermissionRequest, Verdict


def remember(
    session: Session, answer: ApprovalAnswer, suggested: tuple[str, ...], request: PermissionRequest
) -> tuple[str, ...]:
    """Keep a yes for longer than once: by the rules that were shown, which are returned, or by the exact call where
    none fit. Never of what a person must be asked each time."""
    if answer.scope not in ("session", "always") or request.subject.needs_person is not None:
        return ()
    if not suggested:
        session.rights.allowed_inputs.add(remembered_as(request))
        return ()
    for rule in suggested:
        session.rights.policy = session.policy.with_allow(rule)
        if answer.scope == "always" and session.save_rule is not None:
            try:
                session.save_rule(rule)
            except PolicyError as exc:
                text = f"{rule} holds for this session only: {exc}"
                session.emit(Notice(agent_id=session.agent_id, level="warning", text=text))
    return suggested


def remembered_as(request: PermissionRequest) -> str:
    """The exact call: its input, the folder it starts in, where its paths lead. The same text elsewhere is another."""
    return digest(request.tool, {"input": request.input_sha256, "subject": repr(request.subject)})


def note_question(session: Session, question: ApprovalRequest, input_sha256: str) -> None:
    """Record that the person is asked."""
    session.emit(
        PermissionAsked(
            agent_id=session.agent_id,
            call_id=question.call_id,
            tool=question.tool,
            summary=question.subject.summary,
            reason=question.decision.reason,
            rule=question.decision.rule,
            location=question.decision.location,
            input_sha256=input_sha256,
            suggested_rules=question.suggested_rules,
        )
    )


def note(
    session: Session,
    call: Call,
    decision: Decision,
    answer: ApprovalAnswer | None = None,
    *,
    saved_rules: tuple[str, ...] = (),
    counts: bool = True,
) -> Decision:
    """Record a decision; `answer` is what was said where somebody was asked. A denial that `counts` is one of those
    that the run ends with."""
    session.emit(
        PermissionDecided(
            agent_id=session.agent_id,
            call_id=call.use.id,
            tool=call.use.name,
            verdict=decision.verdict.name.lower(),
            reason=decision.reason,
            rule=decision.rule,
            location=decision.location,
            input_sha256=digest(call.use.name, call.use.input),
            asked=answer is not None,
            mode=session.modes[0].value,
            layer=decision.layer,
            hook=decision.hook,
            answered_by=answer.by if answer is not None else None,
            scope=answer.scope if answer is not None and answer.allow else None,
            answer=answer.reason if answer is not None else None,
            saved_rules=saved_rules,
        )
    )
    if decision.verdict is Verdict.DENY and counts:
        denial = {"tool_name": call.use.name, "tool_use_id": call.use.id, "tool_input": call.use.input}
        session.deny({**denial, "reason": decision.reason, "rule": decision.rule})
    return decision
