"""What the person changes in an open session between its runs: the permission mode, the model, a fresh conversation.

Each is an event of the record, so that whoever reads it knows by what a call was judged and who answered.
"""

from __future__ import annotations

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.engine.late import LoadingModel
from sandbox_agent.engine.model_choice import model_kind
from sandbox_agent.engine.planning import choose
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.window import Window
from sandbox_agent.errors import ConfigError, PolicyError
from sandbox_agent.events import ConversationCleared, ModelChanged
from sandbox_agent.models.base import Model
from sandbox_agent.policy.modes import looseness
from sandbox_agent.types import Mode


def set_mode(session: Session, mode: Mode) -> None:
    """Have calls judged in another mode, also those of a run that is under way.

    Raises:
        PolicyError: a layer of the policy locks the mode to a stricter one.
    """
    loosest = session.policy.loosest_mode
    if loosest is not None and looseness(mode) > looseness(loosest):
        location = dict(session.policy.locks).get("mode")
        raise PolicyError(f"the mode {mode.value} is looser than {loosest.value}, which is locked", location=location)
    choose(session, mode)


async def set_model(session: Session, spec: str) -> None:
    """Have another model asked from the next request on. The first agent may not be at work; sub-agents that are in the
    background end with the model that they have.

    Args:
        session: whose.
        spec: as `--model` takes it.

    Raises:
        ConfigError: there is no such model, no key for it, or no price where the cost is limited; the one before stays.
    """
    module, name = model_kind(spec)
    loading = LoadingModel(lambda: registry.load("models", module).create(name))
    await loading.load()
    model = await loading.loaded()
    try:
        if module == "anthropic":
            await anyio.to_thread.run_sync(session.budget.prices.load)
        session.budget.check((model.name,))
    except ConfigError:
        await model.aclose()
        raise
    before, session.model = session.model, model
    session.window = Window(session.limits.context_tokens)
    if module != "anthropic":
        session.fallback = None  # there is no other model of that kind
    session.tasks.start_soon(_close_once_unused, session, before)
    session.emit(ModelChanged(model=model.name, before=before.name))


async def _close_once_unused(session: Session, model: Model) -> None:
    """Sub-agents that are at work in the background have begun with it."""
    try:
        await session.jobs.wait_idle(None)
    finally:
        with anyio.CancelScope(shield=True):
            await model.aclose()


def clear(session: Session) -> None:
    """Begin the conversation anew, on the workspace as it is. No run may be under way.

    What the model knew of files counts no longer, and what waits in the queue was for the conversation before.
    """
    session.queue.take(Priority.LATER)
    session.emit(ConversationCleared())
    session.window.forget()
    session.ctx.known_files.clear()
    session.ctx.failed_edits.clear()
