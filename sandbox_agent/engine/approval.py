"""Questions to the person about calls, and their answers; see `engine.gate` for when one is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandbox_agent.types import Decision, JsonObject, Subject


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the person: exactly what would run, one question for all parts of a command.

    `suggested_rules` are the narrowest rules that together would allow it, one for each part that nothing covers; none
    where no rules can. `agent_id` is who wants it: "main", or a sub-agent.
    """

    call_id: str
    tool: str
    subject: Subject
    input: JsonObject
    decision: Decision
    suggested_rules: tuple[str, ...] = ()
    agent_id: str = "main"


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The answer. `scope` is "once", "session" or "always"; `reason` goes to the model when refused; `by` says who
    answered, for the record: "person", "hook", or "callback" of the embedding program. `updated_input` is what is to
    run in place of what was asked about: it is judged anew, and a deny rule stands."""

    allow: bool
    scope: str = "once"
    reason: str | None = None
    by: str = field(default="callback", compare=False)
    updated_input: JsonObject | None = None


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]]


class NobodyAnswersError(Exception):
    """Raised by an approver that has nobody to ask about this call, which is denied as where there is no approver."""
