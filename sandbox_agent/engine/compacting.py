"""Making room in a conversation before, or when, the model takes no more of it: trim, else summarise, else say so.

What the conversation becomes is in the event that tells of it, so a record gives the same one wherever it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sandbox_agent.engine import compaction, history
from sandbox_agent.engine.asking import Choice, can_switch, other_model, request_of
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.window import ROOMY_PART
from sandbox_agent.errors import ModelError, ModelOverloadedError, ReplayMismatchError
from sandbox_agent.events import ConversationCompacted, ModelRetrying, Notice, ResultsTrimmed
from sandbox_agent.models.base import Answer, ModelRequest, Retrying
from sandbox_agent.policy.modes import looseness
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import Mode, Usage

TOO_LONG = frozenset({"prompt_too_long", "request_too_large"})
"""The kinds of a `ModelRejectedError` that a shorter conversation can mend."""

SUMMARY_MAX_TOKENS = 16_000
_SUMMARY_PART = 0.25
_SHOWN_RULES = 15

Spend = Callable[[str, Usage], None]
"""Takes what a request used: the model's name, and the figures."""


class _Lengths(NamedTuple):
    used: int
    window: int


class _Summary(NamedTuple):
    text: str
    model: str
    usage: Usage


async def make_room(session: Session, choice: Choice, spend: Spend) -> None:
    """Shorten an agent's conversation if it is nearly as long as it may be; mostly that is nothing to do.

    Raises:
        ModelError: it has to be summarised, and the model gave no summary.
    """
    used, window = await _lengths(session, choice)
    if not session.window.is_full(used, window) or _trimmed(session, used, window):
        return
    if not compaction.can_compact(session.messages):
        _trim(session, compaction.too_long_at_once(session.messages, window), used, window)
        return
    try:
        await _compact(session, choice, "full", spend, used, window)
    except ModelOverloadedError as exc:
        if not can_switch(session, choice):
            raise
        # It still fits, and the request that comes now has another model to go to.
        text = f"the conversation could not be summarised now: {exc}"
        session.emit(Notice(agent_id=session.agent_id, level="warning", text=text))


async def after_refusal(session: Session, choice: Choice, spend: Spend, refusal: str) -> None:
    """Shorten an agent's conversation that the model takes no more.

    Args:
        session: the agent's.
        choice: the model that is to be asked.
        spend: takes what a summary used.
        refusal: the model's words; they may say how long it may be.

    Raises:
        ModelError: nothing of it can go, or no summary was to be had.
    """
    session.window.learn(refusal, other_model(session, choice))
    used, window = await _lengths(session, choice)
    used = max(used, window)  # what was estimated was too little
    if compaction.can_compact(session.messages):
        await _compact(session, choice, "overflow", spend, used, window)
    elif not _trim(session, compaction.too_long_at_once(session.messages, window), used, window):
        raise ModelError(
            f"the conversation no longer fits the model's context window, and nothing of it can be left out: the task "
            f"alone, or what came with it, is too long ({refusal})",
            kind="prompt_too_long",
        )


async def compact(session: Session, *, focus: str | None = None) -> bool:
    """Summarise a conversation because the person wants it, not while a turn is under way.

    Args:
        session: the agent's.
        focus: what the summary is to keep in particular.

    Returns:
        False where there is nothing that a summary could stand for.

    Raises:
        ModelError: the model gave no summary; the conversation is as before.
    """
    if not compaction.can_compact(session.messages):
        return False
    choice = Choice()
    used, window = await _lengths(session, choice)
    await _compact(session, choice, "asked", session.budget.spend, used, window, focus)
    return True


async def _lengths(session: Session, choice: Choice) -> _Lengths:
    used = session.window.used(session.messages, fixed(session))
    return _Lengths(used, await session.window.tokens(session.model, used, other_model(session, choice)))


def _trimmed(session: Session, used: int, window: int) -> bool:
    """Trim old results where that alone is enough for a while."""
    ids = compaction.worth_trimming(session.messages)
    if _left(session, ids) > ROOMY_PART * window:
        return False
    return _trim(session, ids, used, window)


def _trim(session: Session, ids: Sequence[str], used: int, window: int) -> bool:
    if not ids:
        return False
    after = min(used, _left(session, ids))
    session.emit(
        ResultsTrimmed(
            agent_id=session.agent_id,
            tool_use_ids=tuple(ids),
            tokens_before=used,
            tokens_after=after,
            window_tokens=window,
        )
    )
    return True


async def _compact(
    session: Session, choice: Choice, reason: str, spend: Spend, used: int, window: int, focus: str | None = None
) -> None:
    near = f"the conversation is being summarised: about {used:,} of {window:,} tokens"
    session.emit(Notice(agent_id=session.agent_id, level="info", text=near))
    summary = await _summary(session, _forms(session, choice, reason, window, focus), spend)
    jobs = "\n".join(f"{job.id} ({job.kind}): {job.what}" for job in session.jobs.running(session.agent_id))
    strictest = min(session.modes, key=looseness)
    facts = compaction.Facts(permissions(session.policy, strictest), session.ctx.cwd, jobs)
    shorter = compaction.compacted(session.messages, summary.text, facts, window)
    session.window.forget()
    after = session.window.floor_tokens = session.window.used(shorter, fixed(session))
    session.emit(
        ConversationCompacted(
            agent_id=session.agent_id,
            messages=tuple(shorter),
            reason=reason,
            tokens_before=used,
            tokens_after=after,
            window_tokens=window,
            model=summary.model,
            usage=summary.usage,
        )
    )
    # What it knows of files is gone from its sight, as after a resume: it has to read before it overwrites.
    session.ctx.known_files.clear()
    session.sync_soon()


def _forms(session: Session, choice: Choice, reason: str, window: int, focus: str | None) -> Sequence[ModelRequest]:
    """What is asked for a summary, the best first and the smallest last."""
    messages = list(session.messages)
    trimmed = request_of(session, choice, compaction.trimmed_request(messages, focus))
    digest = request_of(session, choice, compaction.digest_request(messages, focus, window))
    forms = [trimmed, replace(digest, tools=())]
    if reason != "overflow":
        forms.insert(0, request_of(session, choice, compaction.whole_request(messages, focus)))
    max_tokens = max(min(SUMMARY_MAX_TOKENS, int(_SUMMARY_PART * window)), 1)
    return [replace(form, max_tokens=max_tokens) for form in forms]


async def _summary(session: Session, forms: Sequence[ModelRequest], spend: Spend) -> _Summary:
    """The model's own words for the conversation, asked for in smaller and smaller forms."""
    why = ""
    for form in forms:
        try:
            answer = await _answer(session, form)
        except (ModelOverloadedError, ReplayMismatchError):
            raise
        except ModelError as exc:
            why = str(exc)
            continue
        spend(answer.model, answer.usage)
        text = "\n".join(str(one.get("text", "")) for one in answer.content if one.get("type") == "text").strip()
        if text and answer.stop_reason != "refusal":
            return _Summary(text, answer.model, answer.usage)
        why = "it refused" if answer.stop_reason == "refusal" else f"its answer had no text ({answer.stop_reason})"
    raise ModelError(
        f"the conversation is too long to go on, and the model gave no summary of it in {len(forms)} tries; nothing is "
        f"lost, and the session can be gone on with (--resume {session.id}); the last try: {why}",
        kind="compaction_failed",
    )


async def _answer(session: Session, request: ModelRequest) -> Answer:
    answer: Answer | None = None
    async for event in session.model.stream(request):
        match event:
            case Retrying(attempt, wait_s, reason):
                session.emit(ModelRetrying(agent_id=session.agent_id, attempt=attempt, wait_s=wait_s, reason=reason))
            case Answer():
                answer = event
            case _:
                pass
    if answer is None:
        raise ModelError(f"{session.model.name} ended its stream without an answer")
    return answer


def fixed(session: Session) -> tuple[object, ...]:
    """What every request of an agent has besides its conversation."""
    return session.system, session.pool


def _left(session: Session, ids: Sequence[str]) -> int:
    """How long the conversation is without the results of these calls."""
    shorter = list(session.messages)
    history.trim(shorter, ids)
    return session.window.used(shorter, fixed(session))


def permissions(policy: Policy, mode: Mode) -> str:
    """What may be done, in a few lines for the model."""
    lines = [f"The permission mode is {mode}."]
    for head, rules in (
        ("Denied", policy.rules.deny),
        ("Asked about", policy.rules.ask),
        ("Allowed", policy.rules.allow),
    ):
        texts = [rule.text for rule in rules[:_SHOWN_RULES]]
        more = f" and {len(rules) - _SHOWN_RULES} more" if len(rules) > _SHOWN_RULES else ""
        if texts:
            lines.append(f"{head}: {', '.join(texts)}{more}.")
    hosts = ", ".join(entry.text for entry in policy.sandbox.allow_hosts)
    lines.append(f"Network: {hosts or 'none'}.")
    return "\n".join(lines)
