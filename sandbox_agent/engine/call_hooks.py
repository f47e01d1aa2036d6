"""The hooks of one tool call: before it is judged, when it would be asked about, and after it ran.

Before: all run in their order, each sees the input as the one before left it, and the strictest verdict holds. What
they leave is judged by the gate like any other input. None of it can make an answer of the policy milder.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sandbox_agent.engine import restarting
from sandbox_agent.engine.hook_answers import MAX_CONTEXT_CHARS, HookAnswer, cut
from sandbox_agent.engine.hooks import AnyHook, Hooks, OfCall, place_of, verdict_of
from sandbox_agent.engine.requests import digest, request_of
from sandbox_agent.engine.scheduler import Call
from sandbox_agent.engine.session import Session
from sandbox_agent.events import Notice
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.validation import parse_input
from sandbox_agent.types import Decision, JsonObject, PermissionRequest, Subject, ToolResult, ToolUse, Verdict

_MARK_BEGINS = re.compile(r"<(?=[\s/]*hook-output)", re.IGNORECASE)

Look = Callable[[Call], Awaitable[Subject | Decision | None]]
"""What a call is about, with its paths resolved; anything but a `Subject` is a call that will not run."""


@dataclass(frozen=True, slots=True)
class Hooked:
    """A call as the hooks left it.

    `decision` is their strictest word, ASK or DENY; None if they had nothing against it. `granted` is that of a
    function of the embedding program which answers the question, should there be one. `notes` are for the model.
    """

    call: Call
    decision: Decision | None = None
    granted: Decision | None = None
    notes: tuple[str, ...] = ()


def concern(session: Session, request: PermissionRequest) -> bool:
    """Whether any hook is for this call, before it or after it."""
    hooks = (*_hooks(session, HookEvent.PRE_TOOL_USE), *_hooks(session, HookEvent.POST_TOOL_USE))
    return any(_fits(hook, request) for hook in hooks)


async def before(session: Session, call: Call, look: Look) -> Hooked:
    """Run the pre_tool_use hooks of a call.

    Raises:
        SandboxError: the sandbox is gone.
    """
    hooked = Hooked(call)
    for hook in _hooks(session, HookEvent.PRE_TOOL_USE):
        if hooked.call.input is None:
            break
        subject = await look(hooked.call)
        if not isinstance(subject, Subject):
            break
        request = request_of(session, hooked.call, subject)
        if not _fits(hook, request):
            continue
        answer = await _run(session, hook, hooked.call, request)
        hooked = _with_answer(hooked, hook, answer)
    return hooked


async def question(session: Session, call: Call, request: PermissionRequest, asked: Decision) -> Decision | None:
    """Run the permission_request hooks of a call that is about to be asked about; their answer, None to ask.

    Raises:
        SandboxError: the sandbox is gone.
    """
    strictest: Decision | None = None
    for hook in _hooks(session, HookEvent.PERMISSION_REQUEST):
        if _fits(hook, request):
            answer = await _run(session, hook, call, request, {"reason": asked.reason})
            decision = _decision(hook, answer)
            if decision is not None and (strictest is None or decision.verdict > strictest.verdict):
                strictest = decision
    return None if strictest is None or strictest.verdict is Verdict.ASK else strictest


async def after(session: Session, call: Call, subject: Subject, result: ToolResult) -> tuple[str, ...]:
    """Run the post_tool_use hooks of a call that ran; what the model has to be told after it.

    Raises:
        SandboxError: the sandbox is gone.
    """
    notes = [*restarting.news(session)]
    request: PermissionRequest | None = None
    for hook in _hooks(session, HookEvent.POST_TOOL_USE):
        request = request or request_of(session, call, subject)
        if not _fits(hook, request):
            continue
        response = {"content": result.content, "is_error": result.is_error}
        answer = await _run(session, hook, call, request, {"tool_response": response})
        if answer.fault is not None:
            session.emit(Notice(agent_id=session.agent_id, level="warning", text=f"the hook {hook.id} {answer.fault}"))
        if verdict_of(hook, answer) is Verdict.DENY:
            notes.append(
                prompt("engine/hook_feedback").format(hook=hook.id, reason=reason_for_model(hook, answer.reason))
            )
        if answer.context:
            notes.append(told(hook, answer.context))
    return tuple(notes)


def with_notes(result: ToolResult, notes: Sequence[str]) -> ToolResult:
    """The result with texts for the model behind it."""
    if not notes:
        return result
    text = "\n\n".join(notes)
    if isinstance(result.content, str):
        return replace(result, content=f"{result.content}\n\n{text}" if result.content.strip() else text)
    return replace(result, content=(*result.content, {"type": "text", "text": text}))


def told(hook: AnyHook, text: str) -> str:
    """A hook's words as the model gets them: whose they are, and what they are worth."""
    # What it says can neither end the mark around it early nor begin another, however that is written.
    inner = _MARK_BEGINS.sub("&lt;", text)
    wrapped = prompt("engine/hook_context").format(hook=hook.id, source=place_of(hook), text=inner)
    return f"{prompt('engine/hook_untrusted')}\n{wrapped}" if place_of(hook) == "container" else wrapped


def reason_for_model(hook: AnyHook, reason: str | None) -> str:
    """A hook's reason inside a sentence for the model: as it is from the user's side, marked from the container."""
    text = reason or "it gave no reason"
    return f"\n{told(hook, text)}" if place_of(hook) == "container" else text


def about(session: Session) -> JsonObject:
    """What every hook is told."""
    return {
        "session_id": session.id,
        "cwd": session.ctx.cwd,
        "permission_mode": session.modes[0].value,
        "agent_id": session.agent_id,
    }


def _hooks(session: Session, event: HookEvent) -> tuple[AnyHook, ...]:
    return session.hooks.of(event) if session.hooks is not None else ()


def _fits(hook: AnyHook, request: PermissionRequest) -> bool:
    try:
        return hook.matcher.fits(request)
    except Exception:  # noqa: BLE001 - whatever the judge trips over, the hook is rather run than left out
        return True


async def _run(
    session: Session, hook: AnyHook, call: Call, request: PermissionRequest, more: JsonObject | None = None
) -> HookAnswer:
    assert isinstance(session.hooks, Hooks)
    use = call.use
    # A copy: what a function of the program does to it changes nothing of what runs.
    given = {"tool_name": use.name, "tool_input": copy.deepcopy(use.input), "tool_use_id": use.id}
    of_call = OfCall(
        use.id,
        use.name,
        request.input_sha256,
        check=lambda fields: rewritten(call, fields).fault,
        digest=lambda fields: digest(use.name, fields),
    )
    told_to_it = {**about(session), **given, **(more or {})}
    return await session.hooks.run(hook, told_to_it, agent_id=session.agent_id, of_call=of_call)


class Rewritten(NamedTuple):
    """A call with another input; with the one before where `fault` says what is wrong with the other."""

    call: Call
    fault: str | None


def rewritten(call: Call, fields: JsonObject) -> Rewritten:
    """The call with another input, or what is wrong with that."""
    assert call.tool is not None
    use = ToolUse(call.use.id, call.use.name, fields)
    parsed = parse_input(call.tool, use)
    if isinstance(parsed, str):
        return Rewritten(call, parsed)
    return Rewritten(replace(call, use=use, input=parsed), None)


def _with_answer(hooked: Hooked, hook: AnyHook, answer: HookAnswer) -> Hooked:
    decision = _decision(hook, answer)
    notes = list(hooked.notes)
    call = hooked.call
    if answer.updated_input is not None:
        call = rewritten(call, copy.deepcopy(answer.updated_input)).call
        shown = cut(json.dumps(call.use.input, ensure_ascii=False), MAX_CONTEXT_CHARS)
        notes.append(prompt("engine/hook_rewrote").format(hook=hook.id, input=reason_for_model(hook, shown)))
    if answer.context:
        notes.append(told(hook, answer.context))
    granted, strictest = hooked.granted, hooked.decision
    if decision is not None and decision.verdict is Verdict.ALLOW:
        granted = granted or decision
    elif decision is not None and (strictest is None or decision.verdict > strictest.verdict):
        strictest = decision
    return Hooked(call, strictest, granted, tuple(notes))


def _decision(hook: AnyHook, answer: HookAnswer) -> Decision | None:
    """A hook's word on a call, None if it has none."""
    verdict = verdict_of(hook, answer)
    if verdict is None:
        return None
    if answer.fault is not None:
        said, says = answer.fault, "failed, and a hook that fails denies"
        text = f"the hook {hook.id} {said}, and a hook that fails denies."
    else:
        says = {Verdict.DENY: "blocked it", Verdict.ASK: "wants it asked", Verdict.ALLOW: "allows it"}[verdict]
        said = answer.reason or ""
        text = f"the hook {hook.id} {says}" + (f": {said}" if said else "")
        text += "." if text[-1].isalnum() else ""
    quotes = said and place_of(hook) == "container"
    for_model = f"the hook {hook.id} {says}.\n{told(hook, said)}" if quotes else None
    return Decision(verdict, text, location=hook.location, hook=hook.id, for_model=for_model)
