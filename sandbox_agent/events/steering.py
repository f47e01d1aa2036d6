"""What is changed in a session beside its work: the mode, the model, the conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandbox_agent.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """From now on calls are judged in another permission mode. `by` is "person" or "model"."""

    type: ClassVar[str] = "mode_changed"
    mode: str
    before: str
    by: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanged(Event):
    """From now on another model is asked; both as `--model` spells them."""

    type: ClassVar[str] = "model_changed"
    model: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCleared(Event):
    """What was said before belongs to the conversation no longer; it stays recorded, and the workspace as it is."""

    type: ClassVar[str] = "conversation_cleared"
