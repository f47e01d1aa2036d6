"""The steps of a bundle as a replay takes them: by agent and kind, results and decisions by call."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from sandbox_agent.records.steps import Step

REPLY = "reply"
"""Stands for an answer or a fault: whichever followed a request."""

_REPLIES = ("answer", "fault")
_BY_CALL = ("result", "decision")


class Tape:
    """Each step is taken once."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._queues: dict[tuple[str, str], deque[Step]] = defaultdict(deque)
        self._calls: dict[tuple[str, str, str], deque[Step]] = defaultdict(deque)
        self._turns = deque(step.number for step in steps if step.kind == "turn")
        self._taken: set[int] = set()
        for step in steps:
            if step.kind in _BY_CALL:
                self._calls[step.agent, step.kind, str(step.data["call_id"])].append(step)
            else:
                kind = REPLY if step.kind in _REPLIES else step.kind
                self._queues[step.agent, kind].append(step)

    def peek(self, agent: str, kind: str) -> Step | None:
        """The next step of this kind of the agent, which stays; None where there is none."""
        queue = self._queues.get((agent, kind))
        return queue[0] if queue else None

    def take(self, agent: str, kind: str) -> Step | None:
        """The same, taken."""
        queue = self._queues.get((agent, kind))
        return self._took(queue.popleft()) if queue else None

    def of_call(self, agent: str, kind: str, call_id: str) -> Step | None:
        """The next result of, or decision on, a call, which stays. Two agents may have calls of one ID."""
        queue = self._calls.get((agent, kind, call_id))
        return queue[0] if queue else None

    def take_of_call(self, agent: str, kind: str, call_id: str) -> Step | None:
        """The same, taken."""
        queue = self._calls.get((agent, kind, call_id))
        return self._took(queue.popleft()) if queue else None

    def last(self, kind: str) -> Step | None:
        """The last step of a kind, of any agent."""
        return next((step for step in reversed(self._steps) if step.kind == kind), None)

    @property
    def next_turn(self) -> int | None:
        """The step whose calls are next among those of all agents."""
        return self._turns[0] if self._turns else None

    def turn_done(self) -> None:
        """These calls have run."""
        self._turns.popleft()

    @property
    def has_background(self) -> bool:
        """Whether something went on in the background, of which the end of the run says nothing."""
        return any(step.kind == "result" and step.data["meta"].get("background") for step in self._steps)

    @property
    def done(self) -> int:
        """How many steps were taken."""
        return len(self._taken)

    def left(self) -> Step | None:
        """The first step that was not taken, of those that the course of a run has."""
        passed_over = ("outcome", "end", "window", "tree")
        found = (step for step in self._steps if step.number not in self._taken and step.kind not in passed_over)
        return next(found, None)

    def _took(self, step: Step) -> Step:
        self._taken.add(step.number)
        return step
