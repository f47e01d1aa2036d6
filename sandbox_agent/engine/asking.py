"""One answer of the model: streamed, with its first reads run meanwhile, checked and recorded; or one of the fallback.

The fallback is asked when the model stays overloaded after all its tries, is not known, or refuses to go on, and then
for the rest of the run; the next run begins with the model itself again. It is never asked silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sandbox_agent.engine.answers import check_answer
from sandbox_agent.engine.early import Begun, Head
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.events import (
    AssistantMessage,
    ModelRetrying,
    ModelSwitched,
    RequestStarted,
    TextDelta,
    ThinkingDelta,
)
from sandbox_agent.models.base import Answer, BlockDone, ModelRequest, Retrying, TextPiece, ThinkingPiece
from sandbox_agent.models.outgoing import proofs_in, without_thinking
from sandbox_agent.types import JsonObject, Usage

NOT_FOUND = 404


@dataclass(slots=True)
class Choice:
    """Which model the requests of a run are for: the agent's own, or the fallback once that was needed."""

    fallback: bool = False


class Asked(NamedTuple):
    """An answer, and which of its calls have begun, by id."""

    answer: Answer
    begun: Mapping[str, Begun]


async def ask(session: Session, turn: int, choice: Choice, head: Head, spend: Callable[[str, Usage], None]) -> Asked:
    """Get the next answer and put it into the conversation.

    Args:
        session: the agent's.
        turn: the number of the request, from 1.
        choice: changed where the fallback had to be asked.
        head: takes the calls that may run early.
        spend: takes what each answer used, with the model's name; also that of an answer that counts for nothing.

    Raises:
        ModelError: there is no answer, or none that the engine could go on from.
    """
    session.emit(RequestStarted(agent_id=session.agent_id, turn=turn))
    answer = await _answer_of_either(session, choice, head, spend)
    check_answer(answer, session.messages)
    begun = await head.settle(answer)
    asked_for = _asked_for(session, choice)
    session.signers |= dict.fromkeys(proofs_in([{"role": "assistant", "content": answer.content}]), asked_for)
    session.emit(
        AssistantMessage(
            agent_id=session.agent_id,
            content=answer.content,
            stop_reason=answer.stop_reason,
            model=answer.model,
            usage=answer.usage,
            message_id=answer.message_id,
            cost_usd=session.budget.cost_of(answer.model, answer.usage),
        )
    )
    return Asked(answer, begun)


def refusal_of(answer: Answer) -> str:
    """An answer that ended as a refusal, in words."""
    category = (answer.stop_details or {}).get("category")
    return f"the model refused to go on{f' ({category})' if category else ''}"


async def _answer_of_either(
    session: Session, choice: Choice, head: Head, spend: Callable[[str, Usage], None]
) -> Answer:
    try:
        answer = await _streamed(session, choice, head)
    except (ModelOverloadedError, ModelRejectedError) as exc:
        if not (can_switch(session, choice) and _is_gone(exc)):
            raise
        reason, refused = str(exc), None
    else:
        spend(answer.model, answer.usage)
        if not (can_switch(session, choice) and answer.stop_reason == "refusal"):
            return answer
        reason, refused = refusal_of(answer), answer
    await head.void(reason)
    before, choice.fallback = _asked_for(session, choice), True
    session.emit(
        ModelSwitched(
            agent_id=session.agent_id,
            model=_asked_for(session, choice),
            before=before,
            reason=reason,
            discarded=refused.content if refused is not None else (),
            usage=refused.usage if refused is not None else Usage(),
        )
    )
    answer = await _streamed(session, choice, head)
    spend(answer.model, answer.usage)
    return answer


def request_of(session: Session, choice: Choice, messages: Sequence[JsonObject]) -> ModelRequest:
    """A request with these messages, to the model that is to be asked.

    A signature holds for one model only, so another model's thinking is left out of what is sent. The record and the
    conversation keep it, for the model that it is of.
    """
    asked_for = _asked_for(session, choice)
    foreign = {proof for proof, model in session.signers.items() if model != asked_for}
    sent = without_thinking(messages, foreign) if foreign else messages
    return ModelRequest(
        tuple(sent),
        session.system,
        session.pool.definitions(),
        model=other_model(session, choice),
        agent_id=session.agent_id,
    )


def other_model(session: Session, choice: Choice) -> str | None:
    """What a request asks for in place of the back end's own model."""
    return session.fallback if choice.fallback else session.other_model


async def _streamed(session: Session, choice: Choice, head: Head) -> Answer:
    answer: Answer | None = None
    async for event in session.model.stream(request_of(session, choice, session.messages)):
        match event:
            case TextPiece(text):
                session.emit(TextDelta(agent_id=session.agent_id, text=text))
            case ThinkingPiece(text):
                session.emit(ThinkingDelta(agent_id=session.agent_id, text=text))
            case BlockDone():
                head.feed(event)
            case Retrying(attempt, wait_s, reason):
                await head.void(f"the answer broke off: {reason}")
                session.emit(ModelRetrying(agent_id=session.agent_id, attempt=attempt, wait_s=wait_s, reason=reason))
            case Answer():
                answer = event
    if answer is None:
        raise ModelError(f"{session.model.name} ended its stream without an answer")
    return answer


def _asked_for(session: Session, choice: Choice) -> str:
    """The name of the model that is asked."""
    other = other_model(session, choice)
    return session.model.name if other is None else _named(session, other)


def _named(session: Session, other: str) -> str:
    """The whole name of another model of the same kind."""
    return f"{session.model.name.partition(':')[0]}:{other}"


def can_switch(session: Session, choice: Choice) -> bool:
    """Whether the fallback is there and not asked yet."""
    fallback = session.fallback
    return not choice.fallback and fallback is not None and _named(session, fallback) != _asked_for(session, choice)


def _is_gone(exc: ModelError) -> bool:
    """Whether another model may have what this one has not. A bad key or request is refused by each."""
    return isinstance(exc, ModelOverloadedError) or exc.status == NOT_FOUND or exc.kind == "not_found_error"
