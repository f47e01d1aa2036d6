"""Questions of the model to the person, and how a tool gets at whoever answers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers that are offered."""

    label: str
    description: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `header` is it in a word or two; `several`: more than one choice may be taken. `asker` is who wants
    to know where that is not the agent, such as an MCP server."""

    question: str
    header: str
    choices: tuple[Choice, ...]
    several: bool = False
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one question: labels of its choices, or the person's own words. Neither is no answer."""

    labels: tuple[str, ...] = ()
    text: str | None = None


class Ask(Protocol):
    """Whoever puts questions to the person: a front end, or the embedding program."""

    async def __call__(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        """Wait for the answers. It may take its time, and is cancelled when the run is.

        Args:
            questions: one to four, unsanitised.
            agent_id: who asks, "main" or a sub-agent.

        Returns:
            One reply for each question, in their order; None when nobody answers any.
        """
        ...
