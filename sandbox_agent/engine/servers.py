"""The MCP servers of a session: which there are, starting them beside the container, and their tools among the others.

The first model request waits for them, each for its own deadline at most. What a server wants of the person goes the
way of every question; where nobody answers, the answer is no.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.config import state_dir
from sandbox_agent.engine.approval import ApprovalRequest, NobodyAnswersError
from sandbox_agent.engine.beside import Ground, OwnContainer
from sandbox_agent.engine.elicit import elicited
from sandbox_agent.engine.hook_process import host_environment
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import McpServerChanged, Notice, ToolProgress, ToolsOffered
from sandbox_agent.events.redaction import Secret
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.server_file import read_servers
from sandbox_agent.policy.servers import McpServer, Place, with_environment
from sandbox_agent.policy.trust import lies_in
from sandbox_agent.sandboxes.base import Stream
from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.pool import ToolPool, assemble_tool_pool
from sandbox_agent.types import Decision, JsonObject, Mode, Subject, Verdict

MAX_SERVERS = 50
_COMMAND_CHARS = 300
TOLD_AFTER_S = 2.0
"""Of waiting for servers: then the person is told which ones it is."""


def servers_of(
    policy: Policy,
    files: Sequence[Path],
    environ: Mapping[str, str],
    only: Collection[str] | None = None,
    *,
    workspace: Path,
) -> tuple[McpServer, ...]:
    """The servers of a run, with the person's variables filled in; a policy's server wins over one of a file.

    Args:
        policy: the run's.
        files: those that were named for it.
        environ: the person's variables.
        only: names of those that are wanted; None is all.
        workspace: the folder that is worked on; a file in it may say less than others.

    Raises:
        PolicyError: a file or an entry cannot be used, a variable is not set, or the policy allows no further servers.
    """
    known = servers_named(policy, files, workspace)
    return tuple(with_environment(one, environ) for one in known if only is None or one.name in only)


def servers_named(policy: Policy, files: Sequence[Path], workspace: Path) -> tuple[McpServer, ...]:
    """The same, with `${VAR}` as it is written.

    Raises:
        PolicyError: see `servers_of`.
    """
    found: dict[str, McpServer] = {}
    for path in files:
        if policy.servers_locked_by is not None:
            raise PolicyError(f"--mcp-config {path} may not be used: {policy.servers_locked_by} locks mcp")
        found |= {server.name: server for server in read_servers(path, policy.host_servers, workspace)}
    found |= {server.name: server for server in policy.servers}
    if len(found) > MAX_SERVERS:
        raise PolicyError(f"{len(found)} MCP servers; at most {MAX_SERVERS} can be used")
    return tuple(found.values())


def named(servers: Sequence[McpServer]) -> tuple[dict[str, str], ...]:
    """Which there are, for the record."""
    return tuple({"name": one.name, "place": one.place.value} for one in servers)


def start_servers(session: Session, servers: Sequence[McpServer], ground: Ground) -> None:
    """Give a session its servers, and start them beside its container."""
    if servers:
        session.servers = started = Servers(session, servers, ground)
        started.begin()


class Standing(NamedTuple):
    """How it is with a server: `state` is "connected", "failed" or "closed", `why` says more where it is not there."""

    name: str
    place: str
    state: str
    tools: int
    why: str


class Servers:
    """The servers of one session."""

    def __init__(self, session: Session, servers: Sequence[McpServer], ground: Ground) -> None:
        self._session = session
        self._servers = tuple(servers)
        self._openings: dict[str, Callable[[], Awaitable[Stream]]] = {}
        self._containers: list[OwnContainer] = []
        self._fleet: Any = None
        self._started = anyio.Event()
        self._known: set[str] = set()
        for server in self._servers:
            if server.place is Place.SESSION:
                # Nothing of ours is in its environment but what its entry says.
                self._openings[server.name] = partial(session.sandbox.open, server.command, env=server.env)
            elif server.place is Place.OWN:
                container = OwnContainer(session, server, ground, len(self._containers) + 1)
                self._containers.append(container)
                self._openings[server.name] = container.open

    def begin(self) -> None:
        """Start them in the session's tasks."""
        secrets = [Secret(f"MCP server {one.name}", text) for one in self._servers for text in one.secrets if text]
        self._session.secrecy.redactor.add(secrets)
        on_host = [f"{one.name} ({_whole(one)})" for one in self._servers if one.place is Place.HOST]
        if on_host:
            text = f"MCP servers that are in no container, but on this machine or behind a URL: {', '.join(on_host)}"
            self._session.emit(Notice(level="warning", text=text))
        workspace = self._session.workspace.host
        for one in self._servers:
            if one.place is Place.HOST and (word := _from(workspace, one.command)) is not None:
                text = (
                    f"the MCP server {one.name} runs {word} on this machine, which lies in the folder that is worked "
                    "on: whoever changes it there, changes what runs here"
                )
                self._session.emit(Notice(level="warning", text=text))
        self._session.tasks.start_soon(self._start)

    async def ready(self) -> None:
        """Wait until every server is there, or has failed; then its tools are among the session's."""
        with anyio.move_on_after(TOLD_AFTER_S):
            await self._started.wait()
            return
        names = ", ".join(sorted({one.name for one in self._servers} - self._known))
        if names:
            self._session.emit(Notice(level="info", text=f"waiting for the MCP servers: {names}"))
        await self._started.wait()

    async def standing(self) -> tuple[Standing, ...]:
        """How it is with each, once all have started."""
        await self._started.wait()
        if self._fleet is None:
            return ()
        return tuple(
            Standing(name, one.connection.server.place.value, one.connection.state.value, len(one.offered), _why(one))
            for name, one in self._fleet.members.items()
        )

    async def prompts(self) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """See `mcp.fleet.Fleet.prompts`."""
        await self._started.wait()
        if self._fleet is None:
            return (), ()
        found: tuple[tuple[Any, ...], tuple[str, ...]] = await self._fleet.prompts()
        return found

    async def prompt(self, prompt: Any, arguments: Mapping[str, str]) -> str:
        """What one of `prompts` says with these arguments.

        Raises:
            ToolError: its server does not give it.
        """
        text: str = await self._fleet.prompt(prompt, arguments)
        return text

    async def close(self) -> None:
        """End them all. Shielded, and bounded."""
        if self._fleet is not None:
            await self._fleet.close()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for container in self._containers:
                    group.start_soon(container.close)

    async def _start(self) -> None:
        try:
            # In a thread: importing the package takes a second of CPU.
            module = await anyio.to_thread.run_sync(registry.load, "mcp", "fleet")
            pins = registry.load("mcp", "pins").Pins(state_dir())
            self._fleet = module.Fleet(
                self._servers,
                self._openings,
                host=self._host(),
                pins=pins,
                tell=self._tell,
                progressed=self._progressed,
                approve=self._approve,
                elicit=self._elicit,
                renew=self._renew,
            )
            await self._fleet.start(self._session.tasks)
            self._renew()
        finally:
            self._started.set()

    def _host(self) -> Any:
        """What a server on this machine starts with: nothing that the agent could have written is found by it."""
        workspace = self._session.workspace.host
        home = Path.home()
        env = host_environment(os.environ, workspace)
        env |= {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        folder = Path("/") if lies_in(home, workspace) else home
        return registry.load("mcp", "host").HostGround(env, folder)

    def _renew(self) -> None:
        session = self._session
        tools: Sequence[Tool] = self._fleet.tools
        hidden = session.policy.hidden_tools([tool.name for tool in tools])
        # What was taken from the session meanwhile (a mode, a limit) stays taken.
        others = [tool for tool in session.pool.tools if tool.source.partition(":")[0] != "mcp"]
        merged = assemble_tool_pool(others, [tool for tool in tools if tool.name not in hidden])
        session.pool = ToolPool(merged.tools, merged.dropped, session.pool.absent)
        dropped = tuple({"tool": one.name, "source": one.source, "kept": one.kept} for one in merged.dropped)
        session.emit(ToolsOffered(tools=session.pool.names(), dropped=dropped))
        for one in merged.dropped:
            text = f"the tool {one.name} of {one.source} is left out: {one.kept} has one of that name"
            session.emit(Notice(level="warning", text=text))

    def _tell(self, told: Any) -> None:
        server: McpServer = told.server
        self._known.add(server.name)
        self._session.emit(
            McpServerChanged(
                server=server.name,
                place=server.place.value,
                shown=server.shown,
                state=told.state.value,
                tools=told.tools,
                left_out=tuple({"tool": name, "reason": reason} for name, reason in told.left_out),
                protocol=told.protocol,
                version=told.version,
                pin=told.pin,
                error=told.error,
                note=told.note,
            )
        )

    def _progressed(self, server: str, call_id: str, progress: float, total: float | None, message: str | None) -> None:
        event = ToolProgress(call_id=call_id, server=server, progress=progress, total=total, message=message)
        self._session.emit(event)

    async def _approve(self, server: McpServer, text: str) -> bool:
        session = self._session
        if session.approver is None or session.mode is Mode.DONT_ASK:
            return False
        reason = f"the MCP server {server.name} has other tools than were approved ({text}). Use them as they are now?"
        question = ApprovalRequest(
            call_id="",
            tool=f"mcp__{server.name}",
            subject=Subject(summary=text),
            input={},
            decision=Decision(Verdict.ASK, reason, location=server.location),
        )
        try:
            async with session.rights.asking:
                answer = await session.approver(question)
        except NobodyAnswersError:
            return False
        return answer.allow is True

    async def _elicit(self, server: str, message: str, schema: JsonObject) -> JsonObject | None:
        """The person's answers to what a server asks, None where there are none."""
        session = self._session
        if session.ctx.ask is None:
            return None
        try:
            return await elicited(server, message, schema, session.ctx.ask, session.agent_id)
        except Exception as exc:  # noqa: BLE001 - whoever answers is the embedding program's code
            text = f"the question of the MCP server {server} failed ({type(exc).__name__}), and was answered with no"
            session.emit(Notice(level="warning", text=text))
            return None


def _why(member: Any) -> str:
    return "" if member.connection.state.value == "connected" else str(member.connection.error)


def _from(workspace: Path, command: Sequence[str]) -> str | None:
    """The first word of a command that is a file of the workspace."""
    paths = ((word, Path(word)) for word in command if word.startswith("/"))
    return next((word for word, at in paths if lies_in(at, workspace) and at != workspace and not at.is_dir()), None)


def _whole(server: McpServer) -> str:
    """All of a command, for a look at it before it runs; secrets in it are masked on the way out."""
    text = " ".join(server.command) or server.shown
    return text if len(text) <= _COMMAND_CHARS else f"{text[:_COMMAND_CHARS]} ..."
