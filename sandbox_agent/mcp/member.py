"""One server among those of a session: what its tools were when they were approved, and looking at them anew.

A server may say at any time that its tools are others now. What is stale is looked at before the next call, and in the
background with rests, so that a server that says so all the time costs nobody anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.connection import Connection, State
from sandbox_agent.mcp.pins import Difference, Pins, difference
from sandbox_agent.mcp.tools import Offer, Progressed, list_pin, offer
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.tools.base import Tool

MAX_REFUSALS = 3
"""Of one server in one session, before its further lists are refused without a question."""

LOOKS_BEFORE_A_CALL = 2
"""The one that is under way, and one that begins after the call."""

REST_S = 0.5
"""Between two looks that no call waits for. It doubles, up to MAX_REST_S, with each look that comes to nothing."""

MAX_REST_S = 60.0

Approve = Callable[[McpServer, str], Awaitable[bool]]
"""Whether the person lets a server be used whose tools are others than was approved; the text says how they differ."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a server, for people and the record. `pin` is the hash of its whole list of tools."""

    server: McpServer
    state: State
    tools: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    protocol: str = ""
    version: str = ""
    pin: str = ""
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ways:
    """What the members of a fleet share: where pins are kept, and whom to tell and ask."""

    pins: Pins
    tell: Callable[[Told], None]
    progressed: Progressed
    approve: Approve
    renew: Callable[[], None]


@dataclass(slots=True, eq=False)
class Member:
    """A server with what is known of it; `pins` are those of the tools that are in use.

    `stale`: its list may be another one than that which was looked at last. `unchecked`: the last look failed.
    `looking`: somebody looks, and `looked` is set at the end of it. `hurry`: a call waits. `watched`: a task sees to it
    that what is stale is looked at. `refused` are the lists that the person did not want, `last` is what was told last.
    """

    connection: Connection
    ways: Ways
    offered: dict[str, Tool] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    last: Told | None = None
    stale: bool = False
    unchecked: bool = False
    looking: bool = True
    watched: bool = False
    rest_s: float = REST_S
    looked: anyio.Event = field(default_factory=anyio.Event)
    hurry: anyio.Event = field(default_factory=anyio.Event)
    tasks: TaskGroup | None = None

    def __post_init__(self) -> None:
        self.connection.changed = self.changed
        self.connection.reviewed = self.reviewed
        self.connection.died = self.died

    def begin(self, tasks: TaskGroup) -> None:
        """Start the server."""
        self.tasks = tasks
        self.connection.begin(tasks)

    async def first_look(self) -> None:
        """Wait until it is there with its tools, or has failed. One deadline is for all of that."""
        await self.connection.settled()
        try:
            found = await self._listed(self.connection.start_left_s)
            if found is not None:
                await self._take_up(found)
        finally:
            self._end_look()
        if self.stale:  # it said so while it was looked at
            self.changed()

    def changed(self) -> None:
        """The server says so, or was started again. What comes during a look is looked at after it."""
        self.stale = True
        if not self.watched and not self.looking and self.tasks is not None:
            self.watched = True
            self.tasks.start_soon(self._watch)

    async def reviewed(self) -> None:
        """Wait until its list is looked at, if it may be another one: no tool is called before."""
        self.stale = self.stale or self.unchecked
        for _ in range(LOOKS_BEFORE_A_CALL):
            if not self.looking and not self.stale:
                return
            if not self.looking:
                if self.looked.is_set():
                    self.looked = anyio.Event()
                self.hurry.set()
                self.changed()
            await self.looked.wait()

    def died(self) -> None:
        """It ended by itself."""
        self._say(Told(self.connection.server, State.FAILED, error=self.connection.error))

    async def _watch(self) -> None:
        try:
            while self.stale:
                await self._look()
                with anyio.move_on_after(self.rest_s):
                    await self.hurry.wait()
        finally:
            self.watched = False

    async def _look(self) -> None:
        if self.looked.is_set():
            self.looked = anyio.Event()
        self.looking, self.stale, self.unchecked = True, False, True
        fine = False
        try:
            fine = await self._compare()
        finally:
            self.rest_s = REST_S if fine else min(2 * self.rest_s, MAX_REST_S)
            self._end_look()

    def _end_look(self) -> None:
        self.hurry = anyio.Event()
        self.looking = False
        self.looked.set()

    async def _take_up(self, found: Offer) -> None:
        server = self.connection.server
        known = await anyio.to_thread.run_sync(self.ways.pins.approved, server)
        note = "first use: its tools are remembered as they are now" if known is None else ""
        differs = difference(known, found.pins) if known is not None else None
        if differs is not None and differs.matters and not await self._approved(found, differs):
            found, note = self._held_back(found, differs)
        elif known != found.pins:
            await self._remember(found)
        self.offered, self.pins = found.tools, found.pins
        self._say(self._told(found, note))

    async def _listed(self, within_s: float) -> Offer | None:
        connection = self.connection
        if connection.state is not State.CONNECTED:
            self._say(Told(connection.server, connection.state, error=connection.error))
            return None
        try:
            listed, unusable = await connection.tools(within_s)
            return await anyio.to_thread.run_sync(offer, connection, listed, unusable, self.ways.progressed)
        except ToolError as exc:
            self._say(Told(connection.server, State.FAILED, error=str(exc)))
            return None

    async def _compare(self) -> bool:
        """Whether what it offers now is approved."""
        connection = self.connection
        found = await self._listed(connection.server.startup_timeout_s)
        if found is None:
            why = f"The server {connection.server.name} does not say any more what its tools are, so none is called."
            connection.refusals |= dict.fromkeys(self.pins, why)
            return False
        differs = difference(self.pins, found.pins)
        for name in differs.removed:
            connection.refusals[name] = f"The server {connection.server.name} has this tool no more."
        for name in found.pins.keys() - set(differs.changed):
            connection.refusals.pop(name, None)
        if not differs.matters:
            self.unchecked = False
            return True
        pin = list_pin(found.pins)
        known = pin in self.refused
        approved = await self._approved(found, differs)
        self.unchecked = False
        if not approved:
            _, note = self._held_back(found, differs)
            if not known and pin not in self.refused:
                note = "its tools change again and again; what it says of them is refused without a further question"
            if not known:
                self._say(self._told(None, note))
            return False
        await self._remember(found)
        connection.refusals.clear()
        self.offered, self.pins = found.tools, found.pins
        self._say(self._told(found, f"its tools are others now, which was approved ({differs})"))
        self.ways.renew()
        return True

    async def _approved(self, found: Offer, differs: Difference) -> bool:
        pin = list_pin(found.pins)
        if pin in self.refused or len(self.refused) >= MAX_REFUSALS:
            return False  # asked before; a server that changes all the time gets no further questions out of it
        approved = await self.ways.approve(self.connection.server, str(differs))
        if not approved:
            self.refused.add(pin)
        return approved

    def _held_back(self, found: Offer, differs: Difference) -> tuple[Offer, str]:
        """What of an offer stays in use that nobody approved: tools as they were approved, and nothing else."""
        server = self.connection.server
        why = f"The server {server.name} has changed this tool since it was approved, and nobody has approved that."
        self.connection.refusals |= dict.fromkeys(differs.changed, why)
        unapproved = {*differs.added, *differs.changed}
        kept = Offer(
            {name: tool for name, tool in found.tools.items() if name not in unapproved},
            found.left_out,
            {name: pin for name, pin in found.pins.items() if name not in unapproved},
        )
        note = (
            f"its tools are not those that were approved ({differs}); those are not used. To approve them: "
            f"sandbox-agent mcp test {server.name} --approve"
        )
        return kept, note

    async def _remember(self, found: Offer) -> None:
        try:
            await anyio.to_thread.run_sync(self.ways.pins.approve, self.connection.server, found.pins)
        except OSError as exc:
            note = f"its tools could not be remembered ({exc.strerror or exc}); the next session takes it for a new one"
            self._say(self._told(found, note))

    def _say(self, told: Told) -> None:
        """Once: a server that comes to the same again and again is no news, nor is the end that we made to it."""
        if told != self.last and self.connection.state is not State.CLOSED:
            self.last = told
            self.ways.tell(told)

    def _told(self, found: Offer | None, note: str) -> Told:
        connection = self.connection
        info = connection.identity
        return Told(
            connection.server,
            connection.state,
            tools=tuple(tool.name for tool in (found.tools if found is not None else self.offered).values()),
            left_out=found.left_out if found is not None else (),
            protocol=info[0],
            version=info[1],
            pin=list_pin(found.pins if found is not None else self.pins),
            note=note,
        )
