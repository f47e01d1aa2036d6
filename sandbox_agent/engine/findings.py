"""What a reviewer wants to see of a session, picked out of its events: one fold, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox_agent.engine.requests import digest
from sandbox_agent.events import (
    AssistantMessage,
    CallEffects,
    ChangesApplied,
    FolderDrifted,
    HookRan,
    PermissionAsked,
    PermissionDecided,
    RunFinished,
    SessionStarted,
    ToolStarted,
)
from sandbox_agent.tape import Entry
from sandbox_agent.types import JsonObject, nests_too_deep

CallKey = tuple[str, str]
"""Agent and call: two agents may have calls of one ID."""


@dataclass(slots=True)
class Findings:
    """All lists hold JSON-ready objects, each with `entry`, its number in the record.

    `unjudged` are calls that ran without a decision that allows exactly their input. `untold` has the IDs of calls of
    which nobody knows what they changed, each with its agent. A question whose `answer` is None was never answered.
    """

    runs: list[JsonObject] = field(default_factory=list)
    calls: int = 0
    untold: set[CallKey] = field(default_factory=set)
    unjudged: list[JsonObject] = field(default_factory=list)
    denials: list[JsonObject] = field(default_factory=list)
    questions: list[JsonObject] = field(default_factory=list)
    contradictions: list[JsonObject] = field(default_factory=list)
    applied: list[JsonObject] = field(default_factory=list)
    drifted: list[JsonObject] = field(default_factory=list)
    hooks: list[JsonObject] = field(default_factory=list)
    rules: list[JsonObject] = field(default_factory=list)
    hosts: dict[str, None] = field(default_factory=dict)
    _about: dict[CallKey, str] = field(default_factory=dict)
    _allowed: dict[CallKey, str] = field(default_factory=dict)
    _open: dict[CallKey, JsonObject] = field(default_factory=dict)

    def feed(self, entry: Entry) -> None:
        """Take one entry. An ID of a call stands for the last call of its agent that had it."""
        match entry.event:
            case SessionStarted() as started:
                self.runs.append(_run(entry, started))
            case RunFinished(agent_id="main", status=status, error=error):
                if self.runs:
                    self.runs[-1] |= {"status": status, "error": error}
            case AssistantMessage(content=content):
                agent_id = entry.event.agent_id
                self._about |= {
                    (agent_id, str(block.get("id"))): _first(block) for block in content if "input" in block
                }
            case PermissionAsked() as asked:
                self._asked(entry, asked)
            case PermissionDecided() as decided:
                self._decided(entry, decided)
            case ToolStarted() as started:
                self._started(entry, started)
            case CallEffects() as effects:
                self._did(entry, effects)
            case ChangesApplied() | FolderDrifted() | HookRan() as event:
                self._aside(entry, event)
            case _:
                pass

    def _asked(self, entry: Entry, event: PermissionAsked) -> None:
        key = _key(event)
        self._about[key] = event.summary
        why = {"why": event.reason, "rule": event.rule, "location": event.location}
        question = {**self._call(entry, event.call_id, event.tool), **why, "answer": None}
        self._open[key] = question
        self.questions.append(question)

    def _decided(self, entry: Entry, event: PermissionDecided) -> None:
        names = ("verdict", "reason", "rule", "location", "layer", "hook", "mode", "answered_by", "scope", "answer")
        said = {name: getattr(event, name) for name in names}
        key = _key(event)
        question = self._open.pop(key, None)
        if question is not None:
            question["answer"] = {"entry": entry.seq, **said}
        if event.verdict == "allow":
            self._allowed[key] = event.input_sha256
        else:
            self.denials.append({**self._call(entry, event.call_id, event.tool), **said})
        added = {"scope": event.scope, "by": event.answered_by}
        self.rules += [{"entry": entry.seq, "rule": rule, **added} for rule in event.saved_rules]

    def _started(self, entry: Entry, event: ToolStarted) -> None:
        self.calls += 1
        key = _key(event)
        self._about[key] = event.summary
        self.untold.add(key)
        ran = event.unmasked_sha256
        if ran is None and not nests_too_deep(event.input):
            ran = digest(event.tool, event.input)
        if ran is None or self._allowed.pop(key, None) != ran:
            self.unjudged.append(self._call(entry, event.call_id, event.tool))

    def _did(self, entry: Entry, event: CallEffects) -> None:
        if event.changed is not None:
            self.untold.discard(_key(event))
        self.hosts |= dict.fromkeys(event.hosts)
        if event.contradictions:
            names = ("read_only", "changed_count", "left_processes")
            did = {name: getattr(event, name) for name in names}
            lists = {"kinds": list(event.contradictions), "shared_with": list(event.shared_with)}
            changed = [str(one.get("path")) for one in event.changed or ()]
            call = self._call(entry, event.call_id, event.tool)
            self.contradictions.append({**call, **did, **lists, "changed": changed})

    def _aside(self, entry: Entry, event: ChangesApplied | FolderDrifted | HookRan) -> None:
        place = {"entry": entry.seq, "time_unix_s": entry.time_unix_s}
        match event:
            case ChangesApplied():
                lists = {name: list(getattr(event, name)) for name in ("applied", "unapplied", "partial")}
                self.applied.append({**place, **lists, "conflicts": event.conflicts, "withheld": event.withheld})
            case FolderDrifted():
                found = [{"path": str(one.get("path")), "kind": str(one.get("kind"))} for one in event.changed]
                self.drifted += [{**place, **one} for one in found]
            case HookRan():
                names = ("hook", "event", "place", "location", "exit_code", "decision", "reason", "fault", "call_id")
                self.hooks.append({**place, **{name: getattr(event, name) for name in names}})

    def _call(self, entry: Entry, call_id: str, tool: str) -> JsonObject:
        place = {"entry": entry.seq, "time_unix_s": entry.time_unix_s, "agent_id": entry.event.agent_id}
        return {
            **place,
            "call_id": call_id,
            "tool": tool,
            "about": self._about.get((entry.event.agent_id, call_id), ""),
        }


def _key(event: PermissionAsked | PermissionDecided | ToolStarted | CallEffects) -> CallKey:
    return event.agent_id, event.call_id


def find(entries: Iterable[Entry]) -> Findings:
    """The findings of a whole record."""
    findings = Findings()
    for entry in entries:
        findings.feed(entry)
    return findings


def _run(entry: Entry, event: SessionStarted) -> JsonObject:
    names = ("workspace", "workspace_mode", "model", "policy", "mode", "image", "version")
    past = ("resumed_from", "forked_from", "forked_step")
    made_of = {name: getattr(event, name) for name in (*names, *past)}
    return {"entry": entry.seq, "time_unix_s": entry.time_unix_s, **made_of, "status": "unfinished", "error": None}


def _first(block: JsonObject) -> str:
    """What a call that never started was about: the first thing that the model gave with it."""
    given = block["input"]
    return str(next(iter(given.values()), "")) if isinstance(given, dict) else ""
