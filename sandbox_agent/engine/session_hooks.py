"""The hooks of a session's life: at its start, when an agent would stop, and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from sandbox_agent.engine.call_hooks import about, reason_for_model, told
from sandbox_agent.engine.hook_answers import HookAnswer
from sandbox_agent.engine.hooks import AnyHook, Hooks, ProgramHook, verdict_of
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxError
from sandbox_agent.events import Notice
from sandbox_agent.policy.hooks import HookEvent
from sandbox_agent.prompts import prompt
from sandbox_agent.types import JsonObject, Verdict

STOP_BLOCKS = 8
"""So often a stop hook may send the agent back in one run; the next stop holds."""

END_S = 30.0
"""For all session_end hooks together."""

HURRIED_END_S = 1.5
"""The same, when the session ends by a signal or a fault: what asked for it is waiting."""

_ENDED_BY_ITSELF = ("done", "denied", "limit", "failed")
_KILL_S = 0.5
"""Beyond its share, before a hook is not waited for any longer but killed."""


def attach(session: Session, program: Sequence[ProgramHook]) -> None:
    """Give the session its hooks, and say which of them run on this machine."""
    commands = session.policy.hooks
    session.hooks = Hooks(
        (*program, *commands), sandbox=session.sandbox, workspace=session.workspace.host, emit=session.emit
    )
    session.before_end = partial(end, session)
    on_host = [f"{hook.id} ({hook.location})" for hook in commands if hook.place == "host"]
    if on_host:
        text = f"hooks that run on this machine, outside the container: {', '.join(on_host)}"
        session.emit(Notice(level="info", text=text))


async def close(session: Session) -> None:
    """Run the session_end hooks of a session that closes, those that have not run yet, whatever is being cancelled."""
    try:
        if anyio.current_effective_deadline() > anyio.current_time():
            await end(session)
    finally:
        with anyio.CancelScope(shield=True):
            await end(session, hurried=True)


async def begin(session: Session) -> None:
    """Run the session_start hooks, once; what they say goes to the model with the first request.

    Raises:
        SandboxError: the sandbox is gone, or did not come up.
    """
    hooks = session.hooks
    if hooks is None or hooks.begun:
        return
    hooks.begun = True
    source = "resume" if session.messages[:-1] else "startup"
    for hook in hooks.of(HookEvent.SESSION_START):
        answer = await _run(session, hook, {"source": source})
        if answer.context:
            session.say(told(hook, answer.context))


async def may_stop(session: Session, text: str, blocked: int) -> bool:
    """Run the stop hooks, or those for sub-agents; False when one of them sends the agent on, with its reason as the
    user's next message.

    Args:
        session: whose agent would stop.
        text: what it said last.
        blocked: how often that has happened in this run.

    Raises:
        SandboxError: the sandbox is gone.
    """
    hooks = session.hooks
    reasons = []
    event = HookEvent.STOP if session.parent is None else HookEvent.SUBAGENT_STOP
    more: JsonObject = {"stop_hook_active": blocked > 0, "last_assistant_message": text}
    if session.parent is not None:
        more["agent_type"] = session.agent_type
    for hook in hooks.of(event) if hooks is not None else ():
        answer = await _run(session, hook, more)
        if verdict_of(hook, answer) is Verdict.DENY:
            reason = reason_for_model(hook, answer.reason)
            reasons.append(prompt("engine/hook_stop").format(hook=hook.id, reason=reason))
    if not reasons:
        return True
    if blocked >= STOP_BLOCKS:
        _warn(session, f"{event.value} hooks have sent the agent back {blocked} times; now it stops")
        return True
    session.say("\n\n".join(reasons))
    return False


async def end(session: Session, *, hurried: bool = False) -> None:
    """Run the session_end hooks that have not run yet, of a session that had begun; each gets its share of the time.

    Cancelling ends the one that runs. Faults, also of the sandbox, are told and end nothing.
    """
    hooks = session.hooks
    if hooks is None or not hooks.begun:
        return
    calm = not hurried and hooks.status in _ENDED_BY_ITSELF
    deadline = anyio.current_time() + (END_S if calm else HURRIED_END_S)
    while hooks.to_end:
        share_s = max(0.0, deadline - anyio.current_time()) / len(hooks.to_end)
        hook = hooks.to_end.pop(0)
        try:
            with anyio.fail_after(share_s + _KILL_S):
                await _run(session, hook, {"reason": hooks.status}, most_s=share_s)
        except TimeoutError:
            _warn(session, f"the hook {hook.id} was ended: it took more than its {share_s:.1f} s")
        except SandboxError as exc:
            _warn(session, f"the hook {hook.id} could not be run: {exc}")


async def _run(session: Session, hook: AnyHook, more: JsonObject, *, most_s: float | None = None) -> HookAnswer:
    assert session.hooks is not None
    answer = await session.hooks.run(hook, {**about(session), **more}, agent_id=session.agent_id, most_s=most_s)
    if answer.fault is not None:
        _warn(session, f"the hook {hook.id} {answer.fault}")
    return answer


def _warn(session: Session, text: str) -> None:
    session.emit(Notice(agent_id=session.agent_id, level="warning", text=text))
