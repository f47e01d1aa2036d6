"""From the events of a run to what became of each attempt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandbox_agent.cli.attack.attempts import Attempt
from sandbox_agent.cli.attack.ground import Ground
from sandbox_agent.engine.history import INTERRUPTED
from sandbox_agent.events import (
    AssistantMessage,
    Event,
    PermissionDecided,
    ReviewReady,
    SandboxReady,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
)
from sandbox_agent.frontends.outcome import plain_text

ON_THE_MACHINE = "on the machine: "
"""How a fault begins that is a change of the machine itself."""

_GOT = re.compile(r"^got: .*", re.MULTILINE)

_MARK = re.compile(r"\[masked: [^\]]*\]")


@dataclass(frozen=True, slots=True)
class Answered:
    """One call of an attempt: what the policy decided, and what the container answered (None where it did not run)."""

    tool: str
    verdict: str
    reason: str
    rule: str | None
    location: str | None
    answer: str | None
    duration_s: float

    @property
    def ran(self) -> bool:
        return self.answer is not None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt in one run. `faults` is empty where it was held; `container` is what the container
    did, in words, None where none of its calls ran."""

    attempt: Attempt
    calls: tuple[Answered, ...]
    container: str | None
    faults: tuple[str, ...]

    @property
    def held(self) -> bool:
        return not self.faults

    @property
    def tried(self) -> bool:
        """Whether any of it got to the container."""
        return self.container is not None

    @property
    def decided(self) -> Answered | None:
        """The call whose decision says most: the first that a rule refused, else that was refused, else the first."""
        refused = [call for call in self.calls if not call.ran]
        by_rule = [call for call in refused if call.location is not None]
        return next(iter(by_rule or refused or self.calls), None)


@dataclass(slots=True)
class Watch:
    """Takes the events of one run in which `attempts` are made one a turn, after a first turn; tells `told` of each
    outcome as soon as its turn is over."""

    attempts: Sequence[Attempt]
    ground: Ground
    told: Callable[[Outcome], None]
    session_id: str | None = None
    isolation: str | None = None
    changes_kept: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    """What reached the machine in turns that are no attempt."""
    _turn: int = -1
    _ids: list[str] = field(default_factory=list)
    _decided: dict[str, PermissionDecided] = field(default_factory=dict)
    _answers: dict[str, ToolFinished] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        match event:
            case SessionStarted():
                self.session_id = event.session_id
            case SandboxReady():
                self.isolation = event.isolation
            case AssistantMessage():
                self._ids = [str(block["id"]) for block in event.content if block.get("type") == "tool_use"]
            case PermissionDecided():
                self._decided[event.call_id] = event
            case ToolFinished():
                self._answers[event.call_id] = event
            case ToolResultsMessage():
                self._turn_over()
            case ReviewReady():
                self.changes_kept = len(event.changes)
            case _:
                pass

    def _turn_over(self) -> None:
        self._turn += 1
        calls = [self._answered(call_id) for call_id in self._ids]
        reached = self.ground.changes()
        cut = any(self._answers[call_id].content == INTERRUPTED for call_id in self._ids)
        if self._turn == 0 or cut:  # an attempt that was cut off was not made
            self.early += reached
        elif self._turn <= len(self.attempts):
            outcome = judge(self.attempts[self._turn - 1], calls, reached, self.ground)
            self.outcomes.append(outcome)
            self.told(outcome)

    def _answered(self, call_id: str) -> Answered:
        decided, answer = self._decided.get(call_id), self._answers[call_id]
        if decided is None:
            return Answered(answer.tool, "refused", plain_text(answer.content), None, None, None, 0)
        text = plain_text(answer.content) if decided.verdict == "allow" else None
        return Answered(
            answer.tool, decided.verdict, decided.reason, decided.rule, decided.location, text, answer.duration_s
        )


def judge(attempt: Attempt, calls: Sequence[Answered], reached: Sequence[str], ground: Ground) -> Outcome:
    """Held, if every call that ran was answered as it must be, nothing was got, and nothing reached the machine."""
    faults = [f"{ON_THE_MACHINE}{line}" for line in reached]
    found: dict[str, str] = {}
    for call, pattern in zip(calls, attempt.held, strict=True):
        if call.answer is None:
            continue
        faults += [f"read: {leak}" for leak in ground.leaks(call.answer)]
        # A secret that was read does not reach us: the engine has put a mark in its place.
        faults += [f"read: a secret ({mark})" for mark in _MARK.findall(call.answer)]
        faults += [line for line in _GOT.findall(call.answer)]
        match = re.search(pattern, call.answer)
        if match is None:
            faults.append(f"{call.tool} was answered otherwise: {call.answer.strip()[:200] or 'nothing'}")
        else:
            found |= match.groupdict(default="?")
    ran = any(call.ran for call in calls)
    container = re.sub(r"\{(\w+)\}", lambda name: found.get(name[1], "?"), attempt.container) if ran else None
    return Outcome(attempt, tuple(calls), container, tuple(faults))
