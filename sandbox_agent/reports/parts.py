"""What a session is made of, as its reports see it. `story` puts these together from a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sandbox_agent.events import (
    CallEffects,
    HookRan,
    JobFinished,
    JobStarted,
    PermissionAsked,
    PermissionDecided,
    RunFinished,
    ToolFinished,
)
from sandbox_agent.types import JsonObject, Usage

Outcome = Literal["ok", "failed", "denied", "discarded", "unfinished"]
Tone = Literal["info", "warning", "bad", "good"]


@dataclass(slots=True, kw_only=True)
class Item:
    """Anything on the time line: the entry of the record it begins at, and when that was. `number` counts items."""

    seq: int
    time_unix_s: float
    number: int = 0


@dataclass(slots=True, kw_only=True)
class Said(Item):
    """Text of the person ("user"), the model ("assistant", "thinking"), the folder ("instructions"), or of whoever else
    told a model something ("told"): a parent agent, the engine, or the person once more."""

    who: Literal["user", "told", "assistant", "thinking", "instructions"]
    text: str


@dataclass(slots=True, kw_only=True)
class Request(Item):
    """One request to the model. `usage` is None while, or if, no answer came; `cost_usd` None where it is not known."""

    agent_id: str
    turn: int
    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    duration_s: float | None = None
    stop_reason: str = ""
    inherited: bool = False


@dataclass(slots=True, kw_only=True)
class Aside(Item):
    """Something that happened beside the calls, in one line, with more behind it if there is more."""

    kind: str
    title: str
    text: str = ""
    tone: Tone = "info"


@dataclass(slots=True, kw_only=True)
class Job:
    """What runs in the background; `finished` is None while, or if, its end is not recorded."""

    started: JobStarted
    time_unix_s: float
    finished: JobFinished | None = None


@dataclass(slots=True, kw_only=True)
class Work:
    """One task of a sub-agent. `status` is "unfinished" while, or if, its end is not recorded."""

    agent_id: str
    agent_type: str
    description: str
    model: str | None
    background: bool
    continued: bool
    items: list[Item] = field(default_factory=list)
    status: str = "unfinished"
    text: str = ""
    error: str | None = None
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    duration_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Call(Item):
    """One tool call with all that is recorded of it. `request` numbers the requests of its agent.

    `input` is what ran; what the model sent where nothing did. `inherited`: the session that this one is a fork of made
    it.
    """

    agent_id: str
    call_id: str
    tool: str
    request: int
    summary: str = ""
    input: JsonObject = field(default_factory=dict)
    batch: int | None = None
    ran: bool = False
    asked: PermissionAsked | None = None
    decided: PermissionDecided | None = None
    finished: ToolFinished | None = None
    effects: CallEffects | None = None
    discarded: str | None = None
    hooks: list[HookRan] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    started_unix_s: float | None = None
    inherited: bool = False

    @property
    def about(self) -> str:
        """What it was about in one line: the first thing that the model gave with it, where nothing better is known."""
        return self.summary or str(next(iter(self.input.values()), "")).partition("\n")[0]

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.discarded is not None:
            return "discarded"
        if self.decided is not None and self.decided.verdict != "allow" and not self.ran:
            return "denied"
        if self.finished is None:
            return "unfinished"
        return "failed" if self.finished.is_error else "ok"

    @property
    def changed_files(self) -> int:
        """How many paths it changed, as far as somebody could look."""
        return 0 if self.effects is None else self.effects.changed_count


@dataclass(slots=True, kw_only=True)
class Task:
    """What a person asked for, and what came of it; `finished` is None while, or if, that is not recorded."""

    text: str
    time_unix_s: float
    finished: RunFinished | None = None
    last_unix_s: float = 0.0
    inherited: bool = False
    told_tokens: int = 0
    told_usd: float | None = 0.0
    """By the answers that came; None once one has no known price."""

    def answered(self, usage: Usage, cost_usd: float | None) -> None:
        """An answer came to an agent at work for it."""
        self.told_tokens += usage.total_tokens
        if usage.total_tokens and self.told_usd is not None:
            self.told_usd = None if cost_usd is None else self.told_usd + cost_usd

    @property
    def status(self) -> str:
        return self.finished.status if self.finished is not None else "unfinished"

    @property
    def duration_s(self) -> float:
        return self.finished.duration_s if self.finished is not None else max(0.0, self.last_unix_s - self.time_unix_s)

    @property
    def used_tokens(self) -> int:
        return self.finished.usage.total_tokens if self.finished is not None else self.told_tokens

    @property
    def cost_usd(self) -> float | None:
        """As its end says it; without one, what its answers cost."""
        return self.finished.cost_usd if self.finished is not None else self.told_usd
