"""Runs of one task beside each other: what each came to, and where they part.

A run is a sequence of steps for each of its agents: what one answer called, with which input; what each call gave; and
the last answer, which is text. What an answer says beside its calls is no step: models word things anew each time.
Times, process numbers and the like are noise, by the rules of `records.noise`. Nothing here runs anything.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_agent.events import (
    AssistantMessage,
    CheckFinished,
    CheckpointTaken,
    ConversationCleared,
    ConversationCompacted,
    Event,
    FolderDrifted,
    ReviewReady,
    RunFinished,
    SessionStarted,
    ToolResultsMessage,
)
from sandbox_agent.records.noise import Noise
from sandbox_agent.types import JsonObject, Usage

SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Step:
    """`kind` is "call", "result" or "answer"; `what` is it in a few words, `digest` all of it but the noise."""

    kind: str
    what: str
    digest: str


@dataclass(slots=True)
class Trace:
    """One run, folded from its events. `status` and `error` may be set from outside, where it never came to an end.

    `tree_sha256` is of the last checkpoint; None where there is none. `folder_changed` are paths of the person's folder
    that somebody changed meanwhile, so that later runs begin with something else.
    """

    number: int
    session_id: str | None = None
    status: str = "failed"
    error: str | None = None
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    duration_s: float = 0.0
    tree_sha256: str | None = None
    changed: tuple[str, ...] = ()
    checks: list[CheckFinished] = field(default_factory=list)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    folder_changed: list[str] = field(default_factory=list)
    _noise: Noise = field(default_factory=Noise)
    _tools: dict[str, str] = field(default_factory=dict)

    def feed(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case SessionStarted():
                self.session_id, self._noise = event.session_id, Noise(hosts=[event.workspace])
            case AssistantMessage():
                self._answer(event)
            case ToolResultsMessage():
                for block in event.content:
                    self._result(event.agent_id, block)
            case ConversationCleared() | ConversationCompacted():
                self._add(event.agent_id, "answer", "the conversation was made shorter", event.type)
            case CheckpointTaken():
                self.tree_sha256 = event.tree_sha256
            case FolderDrifted():
                self.folder_changed += [str(one["path"]) for one in event.changed]
            case ReviewReady():
                self.changed = tuple(sorted(str(one["path"]) for one in event.changes))
            case CheckFinished():
                self.checks.append(event)
            case RunFinished(agent_id="main"):
                self.status, self.error, self.turns = event.status, event.error, event.turns
                self.usage, self.cost_usd, self.duration_s = event.usage, event.cost_usd, event.duration_s
            case _:
                pass

    @property
    def ok(self) -> bool:
        """Whether it was done and every check passed."""
        return self.status == "done" and all(one.passed for one in self.checks)

    @property
    def outcome(self) -> str:
        """What it came to, as far as runs are to agree on it: status, tree and checks."""
        checks = [one.passed for one in self.checks]
        return _digest([self.status, self.tree_sha256 or list(self.changed), checks])

    def as_json(self) -> JsonObject:
        """For reports."""
        return {
            "number": self.number,
            "session_id": self.session_id,
            "status": self.status,
            "ok": self.ok,
            "error": self.error,
            "turns": self.turns,
            "total_tokens": self.usage.total_tokens,
            "total_cost_usd": self.cost_usd,
            "duration_s": self.duration_s,
            "tree_sha256": self.tree_sha256,
            "changed_files": list(self.changed),
            "steps": sum(len(steps) for steps in self.steps.values()),
            "checks": [one.as_json() for one in self.checks],
        }

    def _answer(self, event: AssistantMessage) -> None:
        calls = [block for block in event.content if block.get("type") == "tool_use"]
        for block in calls:
            name, given = str(block.get("name")), self._noise.value(block.get("input"))
            self._tools[str(block.get("id"))] = name
            self._add(event.agent_id, "call", f"{name} {_brief(given)}", [name, given])
        if not calls:
            text = "\n".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
            self._add(event.agent_id, "answer", _brief(text.strip()), self._noise.text(text.strip()))

    def _result(self, agent_id: str, block: JsonObject) -> None:
        content = self._noise.value(block.get("content"))
        failed = bool(block.get("is_error"))
        name = self._tools.get(str(block.get("tool_use_id")), "?")
        text = content if isinstance(content, str) else " ".join(str(one.get("text", "")) for one in content or ())
        what = f"{name} gave {'an error: ' if failed else ''}{_brief(text)}"
        self._add(agent_id, "result", what, [failed, content])

    def _add(self, agent_id: str, kind: str, what: str, value: object) -> None:
        self.steps.setdefault(agent_id, []).append(Step(kind, what[:SHOWN_CHARS], _digest([kind, value])))


@dataclass(frozen=True, slots=True)
class Parting:
    """Where runs part first: the step of an agent, from 1, and which runs did what there; None is nothing more."""

    agent_id: str
    step: int
    ways: tuple[tuple[Step | None, tuple[int, ...]], ...]

    def as_json(self) -> JsonObject:
        """For reports."""
        return {
            "agent_id": self.agent_id,
            "step": self.step,
            "ways": [
                {"runs": list(runs), "kind": way.kind if way else None, "what": way.what if way else None}
                for way, runs in self.ways
            ],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs of one task. Shares are between 0 and 1, of all runs.

    `parting` is None where all steps agree. `agreement` has, for each step of the first agent, the share of runs that
    did what most did; `outcome_agreement` the share that came to what most came to (status, tree, checks).
    `pass_rate` is the share that was done with every check passed.
    """

    runs: tuple[Trace, ...]
    parting: Parting | None
    agreement: tuple[float, ...]
    outcome_agreement: float
    pass_rate: float

    @property
    def flake_score(self) -> float:
        """0 where all runs agree at every step and in the end, towards 1 the less they do."""
        return round(1 - min((*self.agreement, self.outcome_agreement)), 4)

    @property
    def trees(self) -> dict[str, list[int]]:
        """The resulting trees, with the runs that came to each."""
        found: dict[str, list[int]] = {}
        for run in self.runs:
            found.setdefault(run.tree_sha256 or "unknown", []).append(run.number)
        return found

    def as_json(self) -> JsonObject:
        """For reports."""
        return {
            "type": "repeat",
            "runs": [run.as_json() for run in self.runs],
            "parting": self.parting.as_json() if self.parting is not None else None,
            "agreement": list(self.agreement),
            "outcome_agreement": self.outcome_agreement,
            "flake_score": self.flake_score,
            "pass_rate": self.pass_rate,
            "trees": self.trees,
            "folder_changed": sorted({path for run in self.runs for path in run.folder_changed}),
        }


def compare(runs: Sequence[Trace]) -> Comparison:
    """Raises ValueError: there is no run."""
    if not runs:
        raise ValueError("there is no run to compare")
    agents = dict.fromkeys(agent for run in runs for agent in run.steps)
    ordered = sorted(agents, key=lambda agent: (agent != "main", agent))
    partings = (_parting(agent, {run.number: run.steps.get(agent, []) for run in runs}) for agent in ordered)
    longest = max(len(run.steps.get("main", [])) for run in runs)
    agreement = tuple(_majority([_at(run.steps.get("main", []), place) for run in runs]) for place in range(longest))
    return Comparison(
        runs=tuple(runs),
        parting=next((found for found in partings if found is not None), None),
        agreement=agreement,
        outcome_agreement=_majority([run.outcome for run in runs]),
        pass_rate=sum(run.ok for run in runs) / len(runs),
    )


def _parting(agent_id: str, runs: Mapping[int, Sequence[Step]]) -> Parting | None:
    for place in range(max(map(len, runs.values()))):
        ways: dict[str | None, list[int]] = {}
        for number, steps in runs.items():
            ways.setdefault(_at(steps, place), []).append(number)
        if len(ways) > 1:
            shown = [
                (runs[numbers[0]][place] if digest is not None else None, tuple(numbers))
                for digest, numbers in sorted(ways.items(), key=lambda way: (-len(way[1]), way[1]))
            ]
            return Parting(agent_id, place + 1, tuple(shown))
    return None


def _at(steps: Sequence[Step], place: int) -> str | None:
    return steps[place].digest if place < len(steps) else None


def _majority(values: Sequence[str | None]) -> float:
    return Counter(values).most_common(1)[0][1] / len(values)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())[:SHOWN_CHARS]
