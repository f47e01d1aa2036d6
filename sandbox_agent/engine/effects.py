"""What every call really did: its processes as the sandbox counted them, and the files that a look found changed.

A look at the workspace says what changed since the look before, not who did it. It is the doing of the calls that ran
in between: of one that wrote the path itself (Edit, Write), else of those that ran programs, else of any. The engine
looks often enough that these are calls of one batch; where they are several, each names the others. A call that
declared itself read-only and changed something, or left processes behind, is told to the person.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from sandbox_agent.engine.metering import Meter
from sandbox_agent.engine.told import SHOWN_CHANGES, shown
from sandbox_agent.events import CallEffects, Event, Notice
from sandbox_agent.types import WORKSPACE_MOUNT, JsonObject, ToolResult
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.snapshot import Delta
from sandbox_agent.workspaces.theirs import theirs

CHANGED_FILES = "changed_files"
LEFT_PROCESSES = "left_processes"

MOST_HOSTS = 200
MOST_REFUSALS = 5
"""Kept of one call: what it asks for is up to it."""

_SHOWN_CALLS = 3
_SHOWN_CHARS = 100


@dataclass(slots=True, kw_only=True, eq=False)
class Doing:
    """One call while it is followed. `runs_programs` says that it can do anything, and not only what its tool does.

    `apart`: it has no way to the workspace. `sends_out`: it asks hosts of the network, whatever else it does. `kept`:
    it left a job behind, whose doing is the call's; the call is followed until that has ended. `alone`: no other call
    that can ask the network ran meanwhile. `traffic` are the bytes that went out and came in while it ran.
    """

    call_id: str
    tool: str
    summary: str
    agent_id: str
    parent_id: str | None
    batch: int
    read_only: bool
    runs_programs: bool
    apart: bool = False
    sends_out: bool = False
    meter: Meter = field(default_factory=Meter)
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    wrote: frozenset[str] = frozenset()
    changed: list[JsonObject] = field(default_factory=list)
    changed_count: int = 0
    shared_with: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    refusals: dict[str, None] = field(default_factory=dict)
    contradicts: bool = False
    kept: bool = False
    alone: bool = True
    traffic_before: tuple[int, int] | None = None
    traffic: tuple[int, int] | None = None

    @property
    def changes(self) -> bool:
        """Whether it may change something of the workspace."""
        return not self.read_only and not self.apart

    @property
    def asks_network(self) -> bool:
        """Whether it can ask for hosts."""
        return self.runs_programs or self.sends_out

    @property
    def name(self) -> str:
        """For people: the tool and what it was about."""
        text = f"{self.tool} `{self.summary}`" if self.summary else self.tool
        return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 4] + "...`"


class Look(NamedTuple):
    """The beginning of a look: the calls that had ended by then, and will be known when it is done."""

    ended: tuple[Doing, ...]


class Effects:
    """The calls of one session that are not told yet."""

    def __init__(self, emit: Callable[[Event], None], workspace: Workspace | None = None) -> None:
        """`workspace` says who else may change what is looked at; None: nobody does."""
        self._emit = emit
        self._alive: Path | None = workspace.host if workspace is not None and workspace.mode == "overlay" else None
        self._bound = workspace is not None and workspace.mode == "bind"
        self._open: list[Doing] = []
        self.traffic: Callable[[], tuple[int, int]] | None = None
        """Bytes that went out and came in so far; None where there is no network."""

    def begin(self, doing: Doing) -> None:
        """A call is about to run."""
        if doing.asks_network:
            others = [other for other in self._open if other.ended_s is None and other.asks_network]
            for other in others:
                other.alone = False
            doing.alone = not others
            doing.traffic_before = self.traffic() if self.traffic is not None else None
        self._open.append(doing)

    def end(self, doing: Doing, result: ToolResult | None) -> None:
        """It ended; None: it was cancelled. One whose job runs on is not over with that."""
        if doing.kept:
            return
        self._ends(doing)
        if result is not None and not doing.runs_programs:
            doing.wrote = _within(result.meta.get("changed"))

    def keep(self, call_id: str, agent_id: str) -> Doing | None:
        """A call that runs now leaves a job behind: follow it until `release`. None where nobody follows it."""
        found = [doing for doing in self._open if (doing.call_id, doing.agent_id) == (call_id, agent_id)]
        running = next((doing for doing in found if doing.ended_s is None), None)
        if running is not None:
            running.kept = True
        return running

    def release(self, doing: Doing) -> None:
        """Its job is over, and the call with it."""
        self._ends(doing)

    def _ends(self, doing: Doing) -> None:
        doing.ended_s = time.monotonic()
        if self.traffic is not None and doing.traffic_before is not None and doing.alone:
            (sent, received), (sent_before, received_before) = self.traffic(), doing.traffic_before
            doing.traffic = sent - sent_before, received - received_before

    def asked(self, host: str, refusal: str | None) -> tuple[str, ...]:
        """A program asked for a host of the network, "" for what was no request; `refusal` is why it was refused.

        Returns the calls whose programs run now: it was one of them, or what an earlier one left behind.
        """
        running = [doing for doing in self._open if doing.ended_s is None and doing.asks_network]
        for doing in running:
            if host and len(doing.hosts) < MOST_HOSTS:
                doing.hosts[host] = None
            if host and refusal is not None and len(doing.refusals) < MOST_REFUSALS:
                doing.refusals[refusal] = None
        return tuple(doing.call_id for doing in running)

    @property
    def pending(self) -> bool:
        """Whether a call is not told yet."""
        return bool(self._open)

    def unseen(self, *, writers: bool = False) -> bool:
        """Whether programs of a call have run that nobody has looked after; `writers`: of one that declared changes."""
        return any(
            doing.runs_programs and doing.ended_s is not None and not (writers and not doing.changes)
            for doing in self._open
        )

    def look_begins(self) -> Look:
        """Somebody starts to look at the workspace."""
        return Look(tuple(doing for doing in self._open if doing.ended_s is not None))

    async def looked(self, look: Look, deltas: Sequence[Delta]) -> list[str]:
        """The look is done: tell the calls that had ended by its beginning. Returns the calls that changed something.

        Args:
            look: its beginning.
            deltas: what differs from the look before.
        """
        running = tuple(self._open)
        before = {doing: (doing.changed_count, doing.contradicts) for doing in running}
        own = await self._without_theirs(deltas) if running else []
        for delta in own:
            _attribute(delta, _owners(delta.path, running))
        authors = [doing.call_id for doing in running if doing.changed_count > before[doing][0]]
        self._accuse([doing for doing in running if doing.contradicts and not before[doing][1]])
        for doing in look.ended:
            self._tell(doing, known=True)
        return authors

    def blind(self) -> None:
        """Nobody can look any more: tell what is known without."""
        for doing in tuple(self._open):
            if doing.ended_s is not None:
                self._tell(doing, known=False)

    async def _without_theirs(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        if self._alive is None or not deltas:
            return deltas
        first = deltas[:SHOWN_CHANGES]
        others = await anyio.to_thread.run_sync(partial(theirs, self._alive, first))
        return [delta for delta in deltas if delta.path not in others] if others else deltas

    def _accuse(self, accused: Sequence[Doing]) -> None:
        """Tell of changes that only calls can have made which declared that they make none."""
        if not accused:
            return
        paths = list(dict.fromkeys(str(one["path"]) for doing in accused for one in doing.changed))
        names = shown([doing.name for doing in accused], _SHOWN_CALLS)
        who = names if len(accused) == 1 else f"one of these: {names}:"
        doubt = " (or somebody else did, at that moment: the folder is bound)" if self._bound else ""
        text = f"{who} changed {shown(paths)} although it was to change nothing{doubt}"
        self._emit(Notice(level="warning", text=text))

    def _tell(self, doing: Doing, *, known: bool) -> None:
        if doing not in self._open:
            return
        self._open.remove(doing)
        meter = doing.meter
        found = [CHANGED_FILES] if doing.contradicts else []
        if meter.left_processes:
            found.append(LEFT_PROCESSES)
            number = f"{meter.left_processes} processes" if meter.left_processes > 1 else "a process"
            text = f"{doing.name} left {number} behind, to be killed: nothing outlives its call"
            self._emit(Notice(level="warning" if doing.read_only else "info", text=text))
        self._emit(
            CallEffects(
                agent_id=doing.agent_id,
                parent_id=doing.parent_id,
                call_id=doing.call_id,
                tool=doing.tool,
                read_only=doing.read_only,
                batch=doing.batch,
                duration_s=(doing.ended_s or time.monotonic()) - doing.started_s,
                changed=tuple(doing.changed) if known else None,
                changed_count=doing.changed_count,
                shared_with=tuple(doing.shared_with),
                left_processes=meter.left_processes,
                hosts=tuple(doing.hosts),
                exit_code=meter.exit_code,
                timed_out=meter.timed_out,
                oom_killed=meter.oom_killed,
                cpu_s=meter.cpu_s,
                max_rss_bytes=meter.max_rss_bytes,
                sent_bytes=doing.traffic[0] if doing.traffic is not None else None,
                received_bytes=doing.traffic[1] if doing.traffic is not None else None,
                contradictions=tuple(found),
            )
        )


def _within(paths: object) -> frozenset[str]:
    """Container paths as paths of the workspace, with the folders that may have been made for them."""
    found = set()
    for path in paths if isinstance(paths, list) else ():
        below = str(path).removeprefix(WORKSPACE_MOUNT + "/")
        while below and below != str(path):
            found.add(below)
            below = posixpath.dirname(below)
    return frozenset(found)


def _owners(path: str, running: Collection[Doing]) -> Collection[Doing]:
    """Whose doing a change may be."""
    wrote = [doing for doing in running if path in doing.wrote]
    return wrote or [doing for doing in running if doing.runs_programs] or running


def _attribute(delta: Delta, owners: Collection[Doing]) -> None:
    declared_none = not any(doing.changes for doing in owners)
    for doing in owners:
        doing.changed_count += 1
        doing.contradicts = doing.contradicts or declared_none
        if len(doing.changed) < SHOWN_CHANGES:
            doing.changed.append({"path": delta.path, "kind": delta.kind})
        if len(owners) > 1:
            doing.shared_with |= {other.call_id: None for other in owners if other is not doing}
