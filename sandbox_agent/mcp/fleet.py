"""All servers of a session: started side by side, each with its own deadline; what comes of them is the tools.

A server that is slow, dead or wrong is told of and left out. One that changes its tools later has to be approved anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio
from anyio.abc import TaskGroup

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.connection import Connection, Elicit
from sandbox_agent.mcp.host import HostGround, HostProcess
from sandbox_agent.mcp.http import open_url
from sandbox_agent.mcp.member import Approve, Member, Told, Ways
from sandbox_agent.mcp.pins import Pins
from sandbox_agent.mcp.prompts import ServerPrompt, filled_in, prompts_of
from sandbox_agent.mcp.resources import resource_tools
from sandbox_agent.mcp.tools import Progressed
from sandbox_agent.mcp.transport import Opening, Wire
from sandbox_agent.mcp.watched import Streams
from sandbox_agent.policy.servers import McpServer, Place, Transport
from sandbox_agent.tools.base import Tool


class Fleet:
    """The servers of one session."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        openings: Mapping[str, Opening],
        *,
        host: HostGround,
        pins: Pins,
        tell: Callable[[Told], None],
        progressed: Progressed,
        approve: Approve,
        elicit: Elicit | None,
        renew: Callable[[], None],
    ) -> None:
        """`openings` start the programs of servers that do not run on this machine, by the server's name; `host` is
        what those find that do. `renew` is called when `tools` gives others than before."""
        for name in ("mcp.client", "mcp.shared", "client"):
            # The package tells of what servers do with tracebacks, which have URLs in them. We tell of it ourselves.
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        ways = Ways(pins, tell, progressed, approve, renew)
        self._members: dict[str, Member] = {}
        for server in servers:
            streams, why_ended = _way(server, openings, host)
            self._members[server.name] = Member(Connection(server, streams, why_ended, elicit), ways)

    async def start(self, tasks: TaskGroup) -> None:
        """Start them all, and wait until each is there with its tools, or has failed."""
        async with anyio.create_task_group() as group:
            for member in self._members.values():
                member.begin(tasks)
                group.start_soon(member.first_look)

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

    async def prompts(self) -> tuple[tuple[ServerPrompt, ...], tuple[str, ...]]:
        """The prompts of all servers that are there, and why some do not say."""
        found: dict[str, tuple[ServerPrompt, ...]] = {}
        faults: dict[str, str] = {}

        async def ask(name: str, connection: Connection) -> None:
            try:
                found[name] = await prompts_of(connection)
            except ToolError as exc:
                faults[name] = str(exc)

        async with anyio.create_task_group() as group:
            for name, member in self._members.items():
                group.start_soon(ask, name, member.connection)
        listed = tuple(prompt for name in self._members for prompt in found.get(name, ()))
        return listed, tuple(faults[name] for name in self._members if name in faults)

    async def prompt(self, prompt: ServerPrompt, arguments: Mapping[str, str]) -> str:
        """What a prompt says with these arguments.

        Raises:
            ToolError: its server does not give it.
        """
        return await filled_in(self._members[prompt.server].connection, prompt.name, arguments)

    @property
    def members(self) -> Mapping[str, Member]:
        """By name of the server."""
        return self._members


def _way(
    server: McpServer, openings: Mapping[str, Opening], host: HostGround
) -> tuple[Callable[[], Streams], Callable[[], str | None]]:
    if server.transport is not Transport.STDIO:
        return partial(open_url, server), lambda: None
    here = partial(HostProcess.start, server.command, host, server.env)
    opening = openings[server.name] if server.place is not Place.HOST else here
    wires: list[Wire] = []

    def streams() -> Streams:
        wires[:] = [Wire(opening)]
        return wires[0].open()

    return streams, lambda: wires[0].why_ended if wires else None
