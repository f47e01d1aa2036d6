"""What happens to one tool call: asked, decided, started, finished, and what it really did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sandbox_agent.events.base import Event
from sandbox_agent.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(Event):
    """A question goes out, about exactly the input that `input_sha256` names; `PermissionDecided` has the answer.

    `reason`, `rule` and `location` say why it is asked. `suggested_rules` are what a yes for longer would add.
    """

    type: ClassVar[str] = "permission_asked"
    call_id: str
    tool: str
    summary: str
    reason: str
    rule: str | None
    location: str | None
    input_sha256: str
    suggested_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionDecided(Event):
    """What the gate said of one call, and who said it.

    `rule` and `location` (file:line) are the rule that spoke, `layer` the part of the policy it is from, `hook` the
    hook that spoke; None where none did. `mode` is the permission mode at that moment. `asked` is True when a person
    or callback was asked: `answered_by` is then "person", "callback" or "hook", `scope` how long a yes holds ("once",
    "session", "always"), `answer` the reason that was given with it, and `saved_rules` the rules that it added.
    """

    type: ClassVar[str] = "permission_decided"
    call_id: str
    tool: str
    verdict: str
    reason: str
    rule: str | None
    location: str | None
    input_sha256: str
    asked: bool = False
    mode: str = ""
    layer: str | None = None
    hook: str | None = None
    answered_by: str | None = None
    scope: str | None = None
    answer: str | None = None
    saved_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(Event):
    """A call begins. `batch` numbers the steps of its turn from 0: calls of one batch run together.

    `unmasked_sha256` is the digest of the input that runs where `input` has marks in place of secrets; else None.
    `early`: its answer still streams, and will come later, if it comes.
    """

    type: ClassVar[str] = "tool_started"
    call_id: str
    tool: str
    summary: str
    input: JsonObject
    batch: int
    unmasked_sha256: str | None = None
    early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDiscarded(Event):
    """A call that had begun while its answer still streamed counts for nothing, because of what became of the answer:
    nobody gets its result. It changed nothing."""

    type: ClassVar[str] = "call_discarded"
    call_id: str
    tool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(Event):
    """A call ended, for whatever reason; refused and invalid calls too (with `duration_s` 0)."""

    type: ClassVar[str] = "tool_finished"
    call_id: str
    tool: str
    content: str | tuple[JsonObject, ...]
    is_error: bool
    duration_s: float
    meta: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEffects(Event):
    """What a call really did, told once the workspace was looked at after it (which may be some calls later).

    `read_only` is what the call declared. `changed` are paths of the workspace, as {"path", "kind"}, the first 1,000
    of `changed_count`; None where nobody could look. They may be another's of `shared_with`: calls that ran between
    the same two looks. `batch` is the call's in its turn. `left_processes` counts what outlived the call and was
    killed. `hosts` are the network hosts it asked for; `sent_bytes` and `received_bytes` went over the network while no
    other call could have asked, None where that is not known or there is no network. `cpu_s` and `max_rss_bytes` (of
    its largest process) are as the sandbox tells them, `exit_code` of the last command; None where not known.
    `contradictions` name how it did other than it declared: "changed_files", "left_processes".
    """

    type: ClassVar[str] = "call_effects"
    call_id: str
    tool: str
    read_only: bool
    batch: int
    duration_s: float
    changed: tuple[JsonObject, ...] | None
    changed_count: int = 0
    shared_with: tuple[str, ...] = ()
    left_processes: int = 0
    hosts: tuple[str, ...] = ()
    exit_code: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    cpu_s: float | None = None
    max_rss_bytes: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultsMessage(Event):
    """The user message that answers all tool_use blocks of a turn, in call order, plus queued text behind them."""

    type: ClassVar[str] = "tool_results"
    content: tuple[JsonObject, ...]
