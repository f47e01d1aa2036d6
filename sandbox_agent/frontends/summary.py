"""A run folded to what reports need, and the exit code it ends with."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox_agent.errors import ConfigError, ModelError, ReplayMismatchError, SandboxError, WorkspaceError
from sandbox_agent.events import (
    AssistantMessage,
    CallEffects,
    ChangesApplied,
    CheckFinished,
    EgressDecided,
    EgressEnded,
    Event,
    FolderDrifted,
    LimitReached,
    ReviewReady,
    RunFinished,
    SessionStarted,
)
from sandbox_agent.frontends.network import HostsAsked
from sandbox_agent.frontends.resources import Resources
from sandbox_agent.types import JsonObject

EXIT_CODES = {
    "done": 0,
    "failed": 1,
    "config_error": 2,
    "denied": 3,
    "limit": 4,
    "sandbox_error": 5,
    "model_error": 6,
    "replay_mismatch": 7,
    "interrupted": 130,
    "terminated": 143,
}
"""By status. A status not listed here ends with 1."""

EXIT_BROKEN_PIPE = 141
"""The reader of stdout went away: what a program that SIGPIPE ended would give."""


def status_of(fault: BaseException) -> str:
    """The status for an error that ended everything before, or outside, the run itself."""
    match fault:
        case ConfigError() | WorkspaceError():
            return "config_error"
        case SandboxError():
            return "sandbox_error"
        case ReplayMismatchError():
            return "replay_mismatch"
        case ModelError():
            return "model_error"
        case _:
            return "failed"


@dataclass(slots=True)
class RunSummary:
    """The fold of the events of a session. `fault_status` and `fault` are set by `end`, and win over the run's own."""

    started: SessionStarted | None = None
    finished: RunFinished | None = None
    review: ReviewReady | None = None
    applied: ChangesApplied | None = None
    limit: LimitReached | None = None
    drifted: dict[str, str] = field(default_factory=dict)
    """Path to kind, as last told."""
    network: HostsAsked = field(default_factory=HostsAsked)
    """Which hosts were asked for, and what became of it."""
    resources: Resources = field(default_factory=Resources)
    """What the calls used on this machine."""
    stop_reason: str | None = None
    contradictions: list[JsonObject] = field(default_factory=list)
    """Calls that did other than they declared, see `CallEffects`."""
    checks: list[CheckFinished] = field(default_factory=list)
    """In the order they ran."""
    record_head: str | None = None
    """The hash of the last line of the session's record; known when the session is closed."""
    fault_status: str | None = None
    fault: str | None = None
    changes_expected: bool = field(default=False)
    """Whether changes that could not be applied make the run a failure (`--apply always`)."""

    def feed(self, event: Event) -> None:
        """Take in one event; those of sub-agents count only through what the main agent reports."""
        match event:
            case SessionStarted():
                self.started = event
            case RunFinished(agent_id="main"):
                self.finished = event
            case ReviewReady():
                self.review = event
            case ChangesApplied():
                self.applied = event
            case CheckFinished():
                self.checks.append(event)
            case FolderDrifted():
                self.drifted |= {str(one["path"]): str(one["kind"]) for one in event.changed}
            case EgressDecided() | EgressEnded():
                self.network.feed(event)
            case CallEffects():
                self.resources.feed(event)
                if event.contradictions:
                    self.contradictions.append(_contradiction(event))
            case LimitReached(agent_id="main"):
                self.limit = event
            case AssistantMessage(agent_id="main"):
                self.stop_reason = event.stop_reason
            case _:
                pass

    def end(self, status: str, error: str | None) -> None:
        """What happened outside the run: a fault before it began, or a signal."""
        self.fault_status, self.fault = status, error

    @property
    def status(self) -> str:
        if self.fault_status is not None:
            return self.fault_status
        status = self.finished.status if self.finished else "failed"
        if status in ("done", "denied") and self.failed_checks:
            return "failed"
        if status == "done" and self.changes_expected and self.applied is not None and self.applied.conflicts:
            return "failed"
        return status

    @property
    def error(self) -> str | None:
        if self.fault is not None:
            return self.fault
        if self.finished is not None and self.finished.error is not None:
            return self.finished.error
        if self.failed_checks:
            return "; ".join(f"check {one.command!r} {one.outcome}" for one in self.failed_checks)
        if self.status == "failed" and self.applied is not None and self.applied.conflicts:
            return f"not applied because of conflicts: {', '.join(sorted(self.applied.conflicts))}"
        return None

    @property
    def failed_checks(self) -> list[CheckFinished]:
        return [one for one in self.checks if not one.passed]

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.status, 1)

    @property
    def applied_files(self) -> list[str]:
        return list(self.applied.applied) if self.applied else []

    @property
    def partially_applied_files(self) -> list[str]:
        """Of which some hunks went; they are among `unapplied_files` for the rest."""
        return list(self.applied.partial) if self.applied else []

    @property
    def conflicts(self) -> dict[str, str]:
        """Chosen, and not applied: path to reason."""
        return dict(self.applied.conflicts) if self.applied else {}

    @property
    def withheld(self) -> dict[str, str]:
        """Not applied since they only go when their own path is named: path to reason."""
        return dict(self.applied.withheld) if self.applied else {}

    @property
    def dangers(self) -> list[JsonObject]:
        """What of the changes can do harm later, each with the reasons, and whether it is in the user's folder now."""
        there = {*self.applied_files, *self.partially_applied_files}
        changes = self.review.changes if self.review else ()
        return [
            {"path": change["path"], "reason": change["danger"], "applied": change["path"] in there}
            for change in changes
            if change.get("danger")
        ]

    @property
    def drifted_files(self) -> list[JsonObject]:
        """What others changed in the user's folder while the session ran."""
        return [{"path": path, "kind": kind} for path, kind in sorted(self.drifted.items())]

    @property
    def unexported_commits(self) -> list[str]:
        """Git's folders with commits or branches that only the session has: `export` gives them out."""
        return list(self.review.commits) if self.review else []

    @property
    def unapplied_files(self) -> list[str]:
        """Changed in the session's copy and not in the user's folder."""
        if self.applied is not None:
            return list(self.applied.unapplied)
        return [str(change["path"]) for change in self.review.changes] if self.review else []

    @property
    def denials(self) -> list[JsonObject]:
        return list(self.finished.denials) if self.finished else []


def _contradiction(event: CallEffects) -> JsonObject:
    return {
        "tool_name": event.tool,
        "tool_use_id": event.call_id,
        "kinds": list(event.contradictions),
        "read_only": event.read_only,
        "changed_files": [str(one["path"]) for one in event.changed or ()],
        "shared_with": list(event.shared_with),
        "left_processes": event.left_processes,
    }
