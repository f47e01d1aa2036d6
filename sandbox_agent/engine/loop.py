"""The loop: ask the model, run its calls, answer, until it stops or a limit is hit. One straight path.

run ─ drive ─ _turn ─ _ask ─ compacting.make_room
                    │      └ asking.ask
                    └ calls.run_calls

`run` is of the first agent of a session, `drive` of any: a sub-agent is driven by the call that started it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import anyio

from sandbox_agent.engine import calls, compacting, session_hooks
from sandbox_agent.engine.asking import Asked, Choice, ask, refusal_of
from sandbox_agent.engine.budget import amount
from sandbox_agent.engine.early import Head
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ModelError, ModelRejectedError, ReplayMismatchError, SandboxAgentError, SandboxError
from sandbox_agent.events import (
    Event,
    LimitReached,
    Notice,
    RunFinished,
    UserMessage,
)
from sandbox_agent.models.base import Answer
from sandbox_agent.prompts import prompt as prompt_text
from sandbox_agent.types import Usage

EXCEEDED = "model_context_window_exceeded"
CUT_ANSWERS_IN_A_ROW = 3
"""So many answers cut by max_tokens, paused or empty, one after the other, end the run."""


@dataclass(slots=True)
class Progress:
    """What a run has used and said so far. `stop` is set to the status when the run is over, `error` to what a person
    is to know of it, `fault` to what was raised."""

    started_s: float = field(default_factory=time.monotonic)
    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    choice: Choice = field(default_factory=Choice)
    text: str = ""
    odd_answers: int = 0
    exceeded: bool = False
    stops_blocked: int = 0
    stop: str | None = None
    error: str | None = None
    fault: SandboxAgentError | None = None

    @property
    def duration_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self.started_s


async def run(session: Session, task: str | None) -> AsyncGenerator[Event, None]:
    """Do a task; yields every event as it happens, `RunFinished` last.

    Faults of model and sandbox end the run as a `RunFinished` with their status; they are not raised. Leaving the
    iteration early cancels the run.

    Args:
        session: whose first agent is to do it.
        task: what; None goes on with what waits in the session's queue, or with a conversation that waits for its
            answer.

    Raises:
        ValueError: there is no task and nothing waits.
    """
    unanswered = bool(session.messages) and session.messages[-1]["role"] == "user"
    if task is None and not session.queue.waiting() and not unanswered:
        raise ValueError("there is no task, and nothing waits in the queue")
    events = session.listen()
    ended = anyio.Event()

    async def begin() -> None:
        try:
            await _run(session, task)
        finally:
            session.hang_up()
            ended.set()

    # The loop lives in the session's own task group, not in one of this generator: a scope entered here would be
    # left in whatever task happens to close the generator.
    session.tasks.start_soon(begin)
    try:
        async with events:
            async for event in events:
                yield event
    finally:
        session.interrupt()
        with anyio.CancelScope(shield=True):
            await ended.wait()


async def _run(session: Session, task: str | None) -> None:
    progress = Progress()
    session.budget.begin()
    if session.answer is not None:
        session.answer.begin()
    try:
        await drive(session, task, progress)
        await _prove(session, progress)
    finally:
        conclude(session, progress)


async def _prove(session: Session, progress: Progress) -> None:
    """The end of a run that is recorded or replayed; one that is not the end that was recorded becomes its status."""
    if session.proof is None:
        return
    try:
        await session.proof.ended(session, progress.stop or "failed", progress.text)
    except SandboxAgentError as exc:
        progress.stop, progress.error, progress.fault = _status_of(exc), str(exc), exc


async def drive(session: Session, task: str | None, progress: Progress) -> None:
    """Do an agent's task to its end; how it ended is in `progress`, also when this is cancelled. What ends a run is not
    raised but told there."""
    session.interrupted = False
    session.denials.clear()
    wall_s = session.limits.wall_s
    try:
        with anyio.CancelScope(deadline=anyio.current_time() + wall_s if wall_s else float("inf")) as scope:
            session.scope = scope
            if session.fault is not None:
                raise session.fault
            await session.secrecy.known()
            if session.parent is None:
                await _get_ready(session, task)
            await _hear(session, Priority.LATER)
            if task is not None:
                session.say(task)
            await session_hooks.begin(session)
            while progress.stop is None:
                with anyio.CancelScope() as session.turn_scope:
                    await _turn(session, progress)
        if scope.cancelled_caught:
            _stopped_early(session, progress)
    except SandboxAgentError as exc:
        progress.stop, progress.error, progress.fault = _status_of(exc), str(exc), exc
    except anyio.get_cancelled_exc_class():
        progress.stop, progress.error = "interrupted", "interrupted"
        raise
    except BaseException as exc:
        progress.stop, progress.error = "failed", f"{type(exc).__name__}: {exc}"
        raise
    finally:
        session.scope = session.turn_scope = None


async def _get_ready(session: Session, task: str | None) -> None:
    """Wait for what must be there before the first agent's first request."""
    if session.servers is not None:
        await session.servers.ready()
    if session.before_task is not None:
        await session.before_task()
    if session.proof is not None:
        await session.proof.given(session, task)


def _stopped_early(session: Session, progress: Progress) -> None:
    if session.fault is not None:
        progress.stop, progress.error, progress.fault = _status_of(session.fault), str(session.fault), session.fault
    elif session.interrupted:
        progress.stop, progress.error = "interrupted", "interrupted by the person"
    else:
        assert session.limits.wall_s is not None
        _limit(session, progress, "wall_s", session.limits.wall_s)


async def _hear(session: Session, up_to: Priority) -> bool:
    """Put what waits in the queue into the conversation; whether the agent has to go on because of it. Waits for
    nothing but in a replay."""
    taken = session.queue.take(up_to) if session.proof is None else await session.proof.heard(session, up_to)
    for message in taken:
        session.emit(UserMessage(agent_id=session.agent_id, content=message.content))
    return any(message.wakes for message in taken)


async def _turn(session: Session, progress: Progress) -> None:
    """One request and what follows from its answer; sets `progress.stop` when the run is over."""
    turns = session.limits.turns
    if turns is not None and progress.turns >= turns:
        _limit(session, progress, "turns", turns)
        return
    over = session.budget.over()
    if over is not None:
        _limit(session, progress, over.name, over.value, f" ({over.reason})")
        return
    for words in session.budget.warnings(session.agent_id, progress.turns, turns):
        session.queue.put(words, Priority.NEXT)
    # What waited before the first turn stands before the task already; a mere note that came since can wait one turn.
    await _hear(session, Priority.NEXT if progress.turns or session.queue.waiting(Priority.NEXT) else Priority.NOW)
    progress.turns += 1
    async with Head(session) as head:
        answer, begun = await _ask(session, progress, head)
        uses = calls.uses_of(answer)
        exceeded, progress.exceeded = progress.exceeded, answer.stop_reason == EXCEEDED
        if uses and answer.stop_reason == "tool_use":
            progress.odd_answers = 0
            progress.calls += len(uses)
            await calls.run_calls(session, uses, begun)
            session.sync_soon()
            return
    if uses:
        calls.refuse_calls(session, uses, prompt_text("engine/calls_not_run").format(stop_reason=answer.stop_reason))
    if progress.exceeded:
        await _exceeded(session, progress, answer, again=exceeded)
    elif uses and answer.stop_reason != "refusal":
        _odd(session, progress, answer, follow_up=None)
    else:
        await _ended(session, progress, answer)


async def _ended(session: Session, progress: Progress, answer: Answer) -> None:
    """The answer asks for no tool, or is a refusal: stop, go on with what waits, or ask again where it was cut."""
    match answer.stop_reason:
        case "max_tokens":
            _odd(session, progress, answer, follow_up=prompt_text("engine/continue"))
        case "pause_turn":
            _odd(session, progress, answer, follow_up=None)
        case "refusal":
            progress.stop, progress.error = "failed", refusal_of(answer)
        case _ if not progress.text.strip():
            _odd(session, progress, answer, follow_up=prompt_text("engine/say_something"))
        case _:
            await _would_stop(session, progress)


async def _would_stop(session: Session, progress: Progress) -> None:
    """The agent has said its last word, unless something waits for it, or is still to come."""
    if await _hear(session, Priority.LATER) or await _goes_on_behind(session):
        return
    may_stop = await session_hooks.may_stop(session, progress.text, progress.stops_blocked)
    # Once more: the hooks took their time. Nothing is waited for between here and the end.
    if may_stop and not await _hear(session, Priority.LATER):
        progress.stop = "denied" if session.denials else "done"
    progress.stops_blocked += 1


async def _goes_on_behind(session: Session) -> bool:
    """Wait for what the agent has running in the background; whether it has to hear something of it."""
    running = session.jobs.running(session.agent_id)
    if not running or session.background_wait_s is None:
        return False
    names = ", ".join(f"{job.id} (`{job.what}`)" for job in running)
    text = f"waiting for what runs in the background: {names}"
    session.emit(Notice(agent_id=session.agent_id, level="info", text=text))
    async with session.ctx.agents.waiting() if session.ctx.agents is not None else nullcontext():
        with anyio.move_on_after(session.background_wait_s) as patience:
            await session.queue.arrived()
    if not patience.cancelled_caught:
        return await _hear(session, Priority.LATER)
    why = f"{session.background_wait_s:g} s after the agent had nothing else to do"
    stopped = await session.jobs.stop_all(why, session.agent_id)
    names = ", ".join(f"{job.id} (`{job.what}`)" for job in stopped)
    text = f"ended {why}: {names}"
    session.emit(Notice(agent_id=session.agent_id, level="warning", text=text))
    await _hear(session, Priority.LATER)  # for a later run; this one has waited long enough
    return False


async def _exceeded(session: Session, progress: Progress, answer: Answer, *, again: bool) -> None:
    """The answer broke off at the end of the model's window: go on in a shorter conversation, but not twice."""
    if again:
        progress.stop, progress.error = "model_error", "the conversation no longer fits the model's context window"
        return
    spend = partial(_spend, session, progress)
    await compacting.after_refusal(session, progress.choice, spend, f"an answer broke off: {EXCEEDED}")
    calls_answered = session.messages[-1]["role"] == "user"
    _odd(session, progress, answer, follow_up=None if calls_answered else prompt_text("engine/continue"))


def _odd(session: Session, progress: Progress, answer: Answer, *, follow_up: str | None) -> None:
    """Go on after an answer that was cut, paused or empty, but not for ever."""
    progress.odd_answers += 1
    if progress.odd_answers >= CUT_ANSWERS_IN_A_ROW:
        progress.stop = "failed"
        progress.error = f"{progress.odd_answers} answers in a row ended with {answer.stop_reason} and no usable result"
    elif follow_up is not None:
        session.say(follow_up)


async def _ask(session: Session, progress: Progress, head: Head) -> Asked:
    """Ask the model; once more with a shorter conversation where this one is too long for it."""
    spend = partial(_spend, session, progress)
    await compacting.make_room(session, progress.choice, spend)
    refusal = None
    try:
        asked = await ask(session, progress.turns, progress.choice, head, spend)
    except ModelRejectedError as exc:
        if exc.kind not in compacting.TOO_LONG:
            raise
        refusal = str(exc)
    if refusal is not None:
        await compacting.after_refusal(session, progress.choice, spend, refusal)
        asked = await ask(session, progress.turns, progress.choice, head, spend)
    session.window.count(asked.answer.usage, session.messages, compacting.fixed(session))
    content = asked.answer.content
    progress.text = "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text").strip()
    return asked


def _spend(session: Session, progress: Progress, model: str, usage: Usage) -> None:
    progress.usage += usage
    session.budget.spend(model, usage)


def _limit(session: Session, progress: Progress, name: str, value: float, reason: str = "") -> None:
    session.emit(LimitReached(agent_id=session.agent_id, limit=name, value=value))
    progress.stop, progress.error = "limit", f"the limit {name} = {amount(name, value)} was reached{reason}"


def _status_of(fault: SandboxAgentError) -> str:
    match fault:
        case SandboxError():
            return "sandbox_error"
        case ReplayMismatchError():
            return "replay_mismatch"
        case ModelError():
            return "model_error"
        case _:
            return "failed"


def conclude(session: Session, progress: Progress) -> None:
    """The end of the first agent's run."""
    answer = session.answer
    missing = answer is not None and answer.value is None and progress.stop in ("done", "denied")
    if answer is not None and missing:
        progress.stop, progress.error = "failed", answer.missing
    if session.hooks is not None:
        session.hooks.status = progress.stop or "failed"
    session.emit(
        RunFinished(
            agent_id=session.agent_id,
            status=progress.stop or "failed",
            text=progress.text,
            turns=progress.turns,
            usage=session.budget.total,
            duration_s=progress.duration_s,
            denials=tuple(session.denials),
            error=progress.error,
            cost_usd=session.budget.cost_usd,
            model_usage=dict(session.budget.usage),
            structured_output=answer.value if answer is not None else None,
            answer_missing=missing,
            api_status=progress.fault.status if isinstance(progress.fault, ModelError) else None,
        )
    )
    session.sync_soon()
