"""All servers of a session: started side by side, each with its own deadline; what comes of them is the tools.

A server that is slow, dead or wrong is told of and left out. One that changes its tools later has to be approved anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.connection import Connection, Elicit, State, Streams
from sandbox_agent.mcp.http import open_url
from sandbox_agent.mcp.pins import Difference, Pins, difference
from sandbox_agent.mcp.resources import resource_tools
from sandbox_agent.mcp.tools import Offer, Progressed, list_pin, offer
from sandbox_agent.mcp.transport import HostProcess, Opening, Wire
from sandbox_agent.policy.servers import McpServer, Place, Transport
from sandbox_agent.tools.base import Tool

MAX_REFUSALS = 3
"""Of one server in one session, before its further lists are refused without a question."""

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


@dataclass(slots=True, eq=False)
class Member:
    """A server with what is known of it; `pins` are those of the tools that are in use. `looks` says that somebody is
    looking at its list, until `looked`, `again` that it has changed since, `unchecked` that looking failed. `refused`
    are the lists that the person did not want."""

    connection: Connection
    offered: dict[str, Tool] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    looks: bool = True
    looked: anyio.Event = field(default_factory=anyio.Event)
    again: bool = False
    unchecked: bool = False
    refused: set[str] = field(default_factory=set)


class Fleet:
    """The servers of one session."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        openings: Mapping[str, Opening],
        *,
        pins: Pins,
        tell: Callable[[Told], None],
        progressed: Progressed,
        approve: Approve,
        elicit: Elicit | None,
        renew: Callable[[], None],
    ) -> None:
        """`openings` start the programs of servers that do not run on this machine, by the server's name. `renew` is
        called when `tools` gives others than before."""
        for name in ("mcp.client", "mcp.shared", "client"):
            # The package tells of what servers do with tracebacks, which have URLs in them. We tell of it ourselves.
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        self._pins = pins
        self._tell = tell
        self._progressed = progressed
        self._approve = approve
        self._renew = renew
        self._tasks: TaskGroup | None = None
        self._members: dict[str, Member] = {}
        for server in servers:
            streams, why_ended = _way(server, openings)
            connection = Connection(server, streams, why_ended, elicit)
            connection.changed = partial(self._changed, server.name)
            connection.died = partial(self._died, connection)
            connection.reviewed = partial(self._reviewed, server.name)
            self._members[server.name] = Member(connection)

    async def start(self, tasks: TaskGroup) -> None:
        """Start them all, and wait until each is there with its tools, or has failed."""
        self._tasks = tasks
        async with anyio.create_task_group() as group:
            for member in self._members.values():
                member.connection.begin(tasks)
                group.start_soon(self._first_look, member)

    async def close(self) -> None:
        """End them all, side by side."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for member in self._members.values():
                    group.start_soon(member.connection.close)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What is offered now."""
        connections = [member.connection for member in self._members.values()]
        offered = [tool for member in self._members.values() for tool in member.offered.values()]
        return (*offered, *resource_tools(connections))

    @property
    def states(self) -> dict[str, State]:
        """By name of the server."""
        return {name: member.connection.state for name, member in self._members.items()}

    async def _first_look(self, member: Member) -> None:
        await member.connection.settled()
        try:
            found = await self._listed(member)
            if found is not None:
                await self._take_up(member, found)
        finally:
            _end_look(member)
        if member.again:  # it said so while it was looked at
            self._changed(member.connection.server.name)

    async def _take_up(self, member: Member, found: Offer) -> None:
        server = member.connection.server
        known = await anyio.to_thread.run_sync(self._pins.approved, server)
        note = "first use: its tools are remembered as they are now" if known is None else ""
        differs = difference(known, found.pins) if known is not None else None
        if differs is not None and differs.matters and not await self._approved(member, found, differs):
            found, note = _held_back(member, found, differs)
        elif known != found.pins:
            await self._remember(member, found)
        member.offered, member.pins = found.tools, found.pins
        self._tell(self._told(member, found, note))

    async def _listed(self, member: Member) -> Offer | None:
        connection = member.connection
        if connection.state is not State.CONNECTED:
            self._tell(Told(connection.server, connection.state, error=connection.error))
            return None
        try:
            listed, unusable = await connection.tools()
            return await anyio.to_thread.run_sync(offer, connection, listed, unusable, self._progressed)
        except ToolError as exc:
            self._tell(Told(connection.server, State.FAILED, error=str(exc)))
            return None

    def _changed(self, name: str) -> None:
        """The server says so. Looking takes its time, and what comes meanwhile is looked at once more afterwards."""
        member = self._members[name]
        member.again = True
        if not member.looks and self._tasks is not None:
            member.looks, member.looked = True, anyio.Event()
            self._tasks.start_soon(self._look_again, member)

    async def _look_again(self, member: Member) -> None:
        try:
            while member.again:
                member.again = False
                await self._compare(member)
        finally:
            _end_look(member)

    async def _reviewed(self, name: str) -> None:
        member = self._members[name]
        if member.unchecked:
            self._changed(name)
        while member.looks:
            await member.looked.wait()

    def _died(self, connection: Connection) -> None:
        self._tell(Told(connection.server, State.FAILED, error=connection.error))

    async def _compare(self, member: Member) -> None:
        found = await self._listed(member)
        connection = member.connection
        member.unchecked = found is None
        if found is None:
            why = f"The server {connection.server.name} does not say any more what its tools are, so none is called."
            connection.refusals |= dict.fromkeys(member.pins, why)
            return
        differs = difference(member.pins, found.pins)
        for name in differs.removed:
            connection.refusals[name] = f"The server {connection.server.name} has this tool no more."
        for name in found.pins.keys() - set(differs.changed):
            connection.refusals.pop(name, None)
        if not differs.matters:
            return
        if not await self._approved(member, found, differs):
            _, note = _held_back(member, found, differs)
            self._tell(self._told(member, None, note))
            return
        await self._remember(member, found)
        connection.refusals.clear()
        member.offered, member.pins = found.tools, found.pins
        self._tell(self._told(member, found, f"its tools are others now, which was approved ({differs})"))
        self._renew()

    async def _approved(self, member: Member, found: Offer, differs: Difference) -> bool:
        pin = list_pin(found.pins)
        if pin in member.refused or len(member.refused) >= MAX_REFUSALS:
            return False  # asked before; a server that changes all the time gets no further questions out of it
        approved = await self._approve(member.connection.server, str(differs))
        if not approved:
            member.refused.add(pin)
        return approved

    async def _remember(self, member: Member, found: Offer) -> None:
        try:
            await anyio.to_thread.run_sync(self._pins.approve, member.connection.server, found.pins)
        except OSError as exc:
            note = f"its tools could not be remembered ({exc.strerror or exc}); the next session takes it for a new one"
            self._tell(self._told(member, found, note))

    def _told(self, member: Member, found: Offer | None, note: str) -> Told:
        connection = member.connection
        info = connection.identity
        return Told(
            connection.server,
            connection.state,
            tools=tuple(tool.name for tool in (found.tools if found is not None else member.offered).values()),
            left_out=found.left_out if found is not None else (),
            protocol=info[0],
            version=info[1],
            pin=list_pin(found.pins if found is not None else member.pins),
            note=note,
        )


def _end_look(member: Member) -> None:
    member.looks = False
    member.looked.set()


def _held_back(member: Member, found: Offer, differs: Difference) -> tuple[Offer, str]:
    """What of an offer stays in use that nobody approved: tools as they were approved, and nothing else."""
    server = member.connection.server
    why = f"The server {server.name} has changed this tool since it was approved, and nobody has approved that."
    member.connection.refusals |= dict.fromkeys(differs.changed, why)
    unapproved = {*differs.added, *differs.changed}
    kept = Offer(
        {name: tool for name, tool in found.tools.items() if name not in unapproved},
        found.left_out,
        {name: pin for name, pin in found.pins.items() if name not in unapproved},
    )
    note = (
        f"its tools are not those that were approved ({differs}); those are not used. To approve them: sandbox-agent "
        f"mcp test {server.name} --approve"
    )
    return kept, note


def _way(server: McpServer, openings: Mapping[str, Opening]) -> tuple[Callable[[], Streams], Callable[[], str | None]]:
    if server.transport is not Transport.STDIO:
        return partial(open_url, server), lambda: None
    opening = openings[server.name] if server.place is not Place.HOST else partial(_on_host, server)
    wires: list[Wire] = []

    def streams() -> Streams:
        wires[:] = [Wire(opening)]
        return wires[0].open()

    return streams, lambda: wires[0].why_ended if wires else None


async def _on_host(server: McpServer) -> HostProcess:
    """Its program on this machine. Of our environment it gets no more than what finds programs and files."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return await HostProcess.start(server.command, {**env, **server.env})
