"""The one gate: every call of every agent is judged here, and nowhere else, before it runs.

A batch is judged in call order, so questions come in order. What needs I/O (where a path leads in the container) is
gathered first, in one round trip; deciding is pure.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio
import anyio.to_thread

from sandbox_agent.engine import call_hooks, restarting
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, Approver, NobodyAnswersError
from sandbox_agent.engine.call_hooks import Hooked
from sandbox_agent.engine.preparing import prepare
from sandbox_agent.engine.requests import binding, request_of
from sandbox_agent.engine.scheduler import Call
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.subjects import leads, led, paths_of, resolve, subject_of
from sandbox_agent.engine.verdicts import note, note_question, remember, remembered_as
from sandbox_agent.policy.policy import Policy
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Decision, JsonObject, Mode, PermissionRequest, Subject, ToolResult, Verdict

HINT_CHARS = 300
MAX_SHOWN_CHARS = 4_000
"""Of the input that was put in place of a call's own, in what the model is told of it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A call as the hooks left it, with its decision; `subject` is what the decision was about, `notes` what hooks have
    to tell the model with its result, `bound` the `binding` of the call as it was judged."""

    call: Call
    decision: Decision
    subject: Subject
    notes: tuple[str, ...] = ()
    bound: str = ""


async def judge(session: Session, calls: Sequence[Call]) -> list[Judged]:
    """Decide every call of a batch, asking the person where the policy says so.

    Raises:
        SandboxError: where a path leads could not be found out because the sandbox is gone.
    """
    session.ctx.withheld = session.policy.withheld
    restarting.from_now_on(session)
    hooked = [await call_hooks.before(session, call, partial(_look, session)) for call in calls]
    calls = [one.call for one in hooked]
    await prepare(calls)  # those that hooks have rewritten are new
    subjects = [subject_of(session, call) for call in calls]
    subjects = await resolve(session, subjects)
    bound = [binding(call) for call in calls]
    judged: list[Judged] = []
    for one, call, subject, exact in zip(hooked, calls, subjects, bound, strict=True):
        if isinstance(subject, Decision):
            judged.append(Judged(call, note(session, call, subject), Subject(call.use.name)))
        elif call.tool is None or call.refused is not None or subject is None:
            judged.append(Judged(call, Decision(Verdict.DENY, "not a valid call"), Subject(call.use.name)))
        else:
            decided = await _decide(session, one, subject)
            one_of = Judged(call, decided, subject, one.notes, exact) if isinstance(decided, Decision) else decided
            judged.append(one_of)
    return judged


async def judge_unasked(session: Session, calls: Sequence[Call]) -> list[tuple[Judged, ToolContext]]:
    """The first of these calls that rules alone allow, in order, each with a context of its own to run in.

    Ends before the first that needs more (a question, a hook) or that is denied: it is judged in its turn, and nothing
    is told of it here.

    Raises:
        SandboxError: see `judge`.
    """
    restarting.from_now_on(session)
    await prepare(calls)
    subjects = [subject_of(session, call) for call in calls]
    paths = paths_of(subjects)
    found = await leads(session, paths) if paths else {}
    ctx = replace(session.ctx, withheld=session.policy.withheld, resolved=found)
    judged: list[tuple[Judged, ToolContext]] = []
    for call, subject in zip(calls, subjects, strict=True):
        if not isinstance(subject, Subject) or (subject.paths and not found):
            break
        subject = led(subject, found)
        request = request_of(session, call, subject)
        if call_hooks.concern(session, request):
            break
        try:
            decision = _strictest(session.policy, request, session.modes)
        except Exception:  # noqa: BLE001 - in its turn it is denied for that
            break
        if decision.verdict is not Verdict.ALLOW:
            break
        judged.append((Judged(call, note(session, call, decision), subject, bound=binding(call)), ctx))
    return judged


async def _look(session: Session, call: Call) -> Subject | Decision | None:
    """What one call is about, for its hooks."""
    await prepare([call])
    return (await resolve(session, [subject_of(session, call)]))[0]


def refusal(decision: Decision) -> ToolResult:
    """What the model is told of a denied call: the reason, and that its siblings went on."""
    said = f"{decision.reason} " if decision.for_model is None else f"{decision.for_model}\n"
    text = f"Permission denied: {said}Do not try to reach the same end another way; say what you need."
    return ToolResult(text, is_error=True, meta={"denied": True, "reason": decision.reason})


async def _decide(session: Session, hooked: Hooked, subject: Subject) -> Decision | Judged:
    """What becomes of a call; the whole of it where whoever was asked has put another input in its place."""
    call = hooked.call
    request = request_of(session, call, subject)
    standing = _standing(session)
    decision = await _ruled(session, hooked, request)
    if decision.verdict is not Verdict.ASK:
        return note(session, call, decision)
    answered = await _answered_by_hook(session, hooked, request, decision)
    if answered is not None:
        return note(session, call, answered, ApprovalAnswer(answered.verdict is Verdict.ALLOW, by="hook"))
    if session.approver is None or Mode.DONT_ASK in session.modes:
        return note(session, call, _nobody(session, request, decision))
    try:
        async with session.rights.asking:
            if _standing(session) != standing:  # the person has said something meanwhile, to another agent's question
                decision = await _ruled(session, hooked, request)
                if decision.verdict is not Verdict.ASK:
                    return note(session, call, decision)
            return await _ask(session, session.approver, hooked, request, decision)
    except anyio.get_cancelled_exc_class():
        interrupted = Decision(Verdict.DENY, "the question was interrupted.")
        note(session, call, interrupted, ApprovalAnswer(False), counts=False)
        raise


def _standing(session: Session) -> tuple[object, ...]:
    """What decisions go by, besides the call itself."""
    return session.policy, len(session.rights.allowed_inputs), session.modes


async def _ruled(session: Session, hooked: Hooked, request: PermissionRequest) -> Decision:
    """What rules, modes, hooks and what the person has allowed for this session say of a call."""
    try:
        decide = partial(_strictest, session.policy, request, session.modes)
        # A command can have hundreds of parts; the event loop is not kept waiting for them.
        heavy = request.subject.command is not None
        decision = await anyio.to_thread.run_sync(decide, abandon_on_cancel=True) if heavy else decide()
    except Exception as exc:  # noqa: BLE001 - a policy that fails denies; the record names the fault
        decision = Decision(Verdict.DENY, f"the policy failed on this call ({type(exc).__name__}: {exc}).")
    by_hook = hooked.decision
    if by_hook is not None and decision.verdict is not Verdict.DENY and by_hook.verdict >= decision.verdict:
        return by_hook
    if decision.verdict is Verdict.ASK and by_hook is None and remembered_as(request) in session.rights.allowed_inputs:
        return Decision(Verdict.ALLOW, "allowed for this session by the person.")
    return decision


def _strictest(policy: Policy, request: PermissionRequest, modes: Sequence[Mode]) -> Decision:
    """What an agent's own mode says, unless that of an agent above it is stricter: no sub-agent may do more."""
    return max((policy.decide(request, mode) for mode in modes), key=lambda decision: decision.verdict)


async def _answered_by_hook(
    session: Session, hooked: Hooked, request: PermissionRequest, decision: Decision
) -> Decision | None:
    """What a hook says in place of the person; nobody may say it where the mode has the question denied."""
    if Mode.DONT_ASK in session.modes:
        return None
    if hooked.granted is not None and hooked.decision is None:
        return hooked.granted
    return await call_hooks.question(session, hooked.call, request, decision)


def _suggested(session: Session, request: PermissionRequest, decision: Decision) -> tuple[str, ...]:
    """The narrowest rules that would answer the question; none answers what a hook wants asked."""
    if decision.hook is not None:
        return ()
    modes = dict.fromkeys(Mode.DEFAULT if mode is Mode.DONT_ASK else mode for mode in session.modes)
    # Each mode asks for itself; one rule may answer several.
    suggested = tuple(dict.fromkeys(rule for mode in modes for rule in session.policy.suggest_rules(request, mode)))
    # A secret has no place in the file of rules, or on a command line, either.
    return () if session.secrecy.redactor.holds(suggested) else suggested


def _way_out(session: Session, request: PermissionRequest, decision: Decision) -> str:
    """What to do about a question that nobody is there to answer: never more than this call needs."""
    if decision.hook is not None:
        return "no rule can allow what a hook wants asked."
    options = " ".join(f"--allow {shlex.quote(rule)}" for rule in _suggested(session, request, decision))
    if not options:
        return "no rule can allow it as it is."
    if len(options) > HINT_CHARS:
        return "allow it by rules in the policy file; `sandbox-agent policy explain` names the narrowest."
    return f"to allow it: {options}, or the same in the policy file."


def _nobody(session: Session, request: PermissionRequest, decision: Decision) -> Decision:
    nobody = f"Nobody is there to ask: {_way_out(session, request, decision)}"
    for_model = None if decision.for_model is None else f"{decision.for_model}\n{nobody}"
    return replace(decision, verdict=Verdict.DENY, reason=f"{decision.reason} {nobody}", for_model=for_model)


async def _ask(
    session: Session, approver: Approver, hooked: Hooked, request: PermissionRequest, decision: Decision
) -> Decision | Judged:
    """Ask the person, whose `asking` is held."""
    call = hooked.call
    # A copy: what the approver does to it changes nothing of what runs. A secret in it is named instead of shown.
    redactor = session.secrecy.redactor
    shown = copy.deepcopy(redactor.value(call.use.input))
    suggested = _suggested(session, request, decision)
    subject, asked = redactor.subject(request.subject), replace(decision, reason=redactor.text(decision.reason))
    question = ApprovalRequest(call.use.id, call.use.name, subject, shown, asked, suggested, session.agent_id)
    note_question(session, question, request.input_sha256)
    try:
        answer = await approver(question)
    except NobodyAnswersError:
        return note(session, call, _nobody(session, request, decision))
    except Exception as exc:  # noqa: BLE001 - an approver that fails has not approved
        answer = ApprovalAnswer(False, reason=f"the approver failed ({type(exc).__name__}: {exc}).")
    if not isinstance(answer, ApprovalAnswer):
        answer = ApprovalAnswer(False, reason=f"the approver gave no answer but {type(answer).__name__}.")
    if answer.allow is not True:
        told = f"the person said no: {answer.reason}" if answer.reason else "the person said no."
        return note(session, call, replace(decision, verdict=Verdict.DENY, reason=told, for_model=None), answer)
    if answer.updated_input is not None:
        return await _replaced(session, hooked, answer, answer.updated_input)
    added = remember(session, answer, suggested, request)
    said_yes = replace(decision, verdict=Verdict.ALLOW, reason="the person said yes.", for_model=None)
    return note(session, call, said_yes, answer, saved_rules=added)


async def _replaced(session: Session, hooked: Hooked, answer: ApprovalAnswer, fields: JsonObject) -> Judged:
    """Judge what whoever was asked wants to run in place of the call: hooks and rules see it as any other, and only the
    question is answered."""
    call, fault = call_hooks.rewritten(hooked.call, copy.deepcopy(fields))
    if fault is None and session.secrecy.redactor.marks_in(call.use.input):
        fault = "it has the mark of a masked secret in it"
    if fault is not None:
        refused = Decision(Verdict.DENY, f"the answer gave an input that cannot be used: {fault}")
        noted = note(session, call, refused, ApprovalAnswer(False, by=answer.by))
        return Judged(call, noted, Subject(call.use.name), hooked.notes)
    others = session.ctx.resolved
    again = await call_hooks.before(session, call, partial(_look, session))
    call, exact = again.call, binding(again.call)
    subject = await _look(session, call)
    session.ctx.resolved = {**others, **session.ctx.resolved}  # the other calls of the batch have theirs in it
    shown = json.dumps(call.use.input, ensure_ascii=False)[:MAX_SHOWN_CHARS]
    notes = (*hooked.notes, *again.notes, prompt("engine/answer_rewrote").format(input=shown))
    if not isinstance(subject, Subject):
        refused = subject or Decision(Verdict.DENY, "the answer gave an input that is no valid call.")
        noted = note(session, call, refused, ApprovalAnswer(False, by=answer.by))
        return Judged(call, noted, Subject(call.use.name), notes)
    decision = await _ruled(session, again, request_of(session, call, subject))
    if decision.verdict is not Verdict.DENY:
        decision = replace(
            decision, verdict=Verdict.ALLOW, reason="allowed with another input by who was asked.", for_model=None
        )
    said = ApprovalAnswer(decision.verdict is Verdict.ALLOW, by=answer.by)
    return Judged(call, note(session, call, decision, said), subject, notes, exact)
