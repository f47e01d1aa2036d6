"""Where there is no model: calls come from somewhere else, and nothing is ever asked of this one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandbox_agent.errors import ModelRejectedError
from sandbox_agent.models.base import ModelEvent, ModelRequest


class AbsentModel:
    """Stands for whoever makes the calls, under the name that is shown and recorded for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Refuses.

        Raises:
            ModelRejectedError: always.
        """
        raise ModelRejectedError(f"this session has no model: its calls come from the {self.name}")
        yield  # makes it the generator that every model's `stream` is

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """Not known."""
        return None

    async def aclose(self) -> None:
        """There is nothing to give back."""
