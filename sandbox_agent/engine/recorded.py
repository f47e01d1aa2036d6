"""From the records of past runs to the calls in them, as requests that a policy can judge again.

Nothing runs. Where a path led is not in a record: each is taken to lead to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sandbox_agent.engine.scheduler import holds
from sandbox_agent.events import (
    AssistantMessage,
    CallEffects,
    EgressDecided,
    PermissionDecided,
    RunFinished,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from sandbox_agent.hostnames import authority
from sandbox_agent.policy.learn import RecordedCall, RecordedRun
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.tape import Entry
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.tools.validation import parse_input
from sandbox_agent.types import WORKSPACE_MOUNT, JsonObject, PermissionRequest, Subject, ToolUse


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the records hold. `policies` are the names of the policies that the runs went by."""

    calls: tuple[RecordedCall, ...]
    runs: tuple[RecordedRun, ...]
    policies: tuple[str, ...]


def recorded(records: Sequence[Sequence[Entry]], tools: Sequence[Tool]) -> Recorded:
    """Everything that the gate decided in these records, in order; and what each run used.

    Args:
        records: the entries of one session each.
        tools: those that could be called; of another one only the name is known.
    """
    known = {tool.name: tool for tool in tools}
    calls: list[RecordedCall] = []
    runs: list[RecordedRun] = []
    policies: dict[str, None] = {}
    for entries in records:
        reading = _Reading(known)
        for entry in entries:
            reading.feed(entry)
        calls += reading.calls
        runs += reading.runs
        policies |= dict.fromkeys(reading.policies)
    return Recorded(tuple(calls), tuple(runs), tuple(policies))


@dataclass(slots=True)
class _Reading:
    """One record, as far as it was read. A call is taken when it was decided and its input is known for good."""

    tools: dict[str, Tool]
    calls: list[RecordedCall] = field(default_factory=list)
    runs: list[RecordedRun] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    _workspace: str = WORKSPACE_MOUNT
    _inputs: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    _cwd: dict[str, str] = field(default_factory=dict)
    _decided: dict[tuple[str, str], tuple[PermissionDecided, str]] = field(default_factory=dict)
    _hosts: dict[str, None] = field(default_factory=dict)
    _unlisted: dict[str, None] = field(default_factory=dict)
    _most_bytes: int | None = None

    def feed(self, entry: Entry) -> None:
        match entry.event:
            case SessionStarted() as started:
                self._workspace = started.workspace
                self.policies.append(started.policy)
            case AssistantMessage(agent_id=agent_id, content=content):
                for block in content:
                    if block.get("type") == "tool_use":
                        self._inputs[agent_id, str(block["id"])] = block.get("input") or {}
            case PermissionDecided() as decided:
                cwd = self._cwd.get(decided.agent_id, WORKSPACE_MOUNT)
                self._decided[decided.agent_id, decided.call_id] = (decided, cwd)
            case ToolStarted() as started:
                # What a hook rewrote is what ran.
                self._inputs[started.agent_id, started.call_id] = started.input
            case ToolFinished() as finished:
                self._take(finished.agent_id, finished.call_id)
                gone_to = finished.meta.get("cwd")
                if isinstance(gone_to, str):
                    self._cwd[finished.agent_id] = gone_to
            case CallEffects() as effects:
                self._hosts |= dict.fromkeys(effects.hosts)
                if effects.max_rss_bytes is not None:
                    self._most_bytes = max(self._most_bytes or 0, effects.max_rss_bytes)
            case EgressDecided(unlisted=True) as refused:
                self._unlisted[authority(refused.host, refused.port)] = None
            case RunFinished(agent_id="main") as ended:
                hosts, unlisted = tuple(self._hosts), tuple(self._unlisted)
                self.runs.append(RecordedRun(ended.turns, ended.duration_s, hosts, unlisted, self._most_bytes))
                self._hosts, self._unlisted, self._most_bytes = {}, {}, None
            case _:
                pass

    def _take(self, agent_id: str, call_id: str) -> None:
        decided, cwd = self._decided.pop((agent_id, call_id), (None, ""))
        given = self._inputs.get((agent_id, call_id))
        if decided is None or given is None:
            return
        refused = None
        if decided.verdict == "deny" and decided.hook is not None:
            refused = f"a hook refused it: {decided.hook}"
        elif decided.verdict == "deny" and decided.asked:
            refused = "it was refused when asked" + (f": {decided.answer}" if decided.answer else "")
        self.calls.append(RecordedCall(self._request(decided.tool, given, cwd), refused))

    def _request(self, name: str, given: JsonObject, cwd: str) -> PermissionRequest:
        tool = self.tools.get(name)
        parsed = parse_input(tool, ToolUse("", name, given)) if tool is not None else ""
        if tool is None or isinstance(parsed, str):
            return PermissionRequest(name, Subject(name), input_sha256="")
        # A subject is made from the input, the folder and the names of places; nothing is asked of the sandbox.
        ctx = ToolContext(sandbox=cast(Sandbox, None), workspace_host=self._workspace, cwd=cwd)
        subject = tool.subject(parsed, ctx)
        led = tuple(replace(access, resolved=access.path) for access in subject.paths)
        return PermissionRequest(
            name,
            replace(subject, paths=led),
            input_sha256="",
            read_only=holds(tool.read_only, parsed),
            edits=holds(tool.edits, parsed),
            source=tool.source,
        )
