"""One server's connection, owned by one task: whatever happens to it happens there, and to nobody else.

The package's client ends its own tasks when a server dies, and takes the task that entered it along. So that task is
the owner, which does nothing else; whoever calls waits for the answer or for the owner to say that there will be none.
A server that died is started once more when it is next called, a few times in all.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
import anyio.lowlevel
import mcp_types
from anyio.abc import TaskGroup
from mcp import Client, MCPError
from pydantic import ValidationError

from sandbox_agent import __version__
from sandbox_agent.errors import SandboxAgentError, ToolError
from sandbox_agent.mcp.incoming import LEFT_OUT, MAX_TOOLS
from sandbox_agent.mcp.results import clean
from sandbox_agent.mcp.watched import Streams, WatchedTransport
from sandbox_agent.policy.servers import McpServer

MAX_STARTS = 5
"""Of one server in one session."""

MAX_PAGES = 50
MAX_RESOURCES = 2_000
MAX_ELICITATIONS = 20
"""Of one server in one session; it is told no after that."""

CLOSE_S = 4.0

Found = TypeVar("Found")

Elicit = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""What a server asks the person: its name, its words, and the schema of the answer; None is no."""


class Progressed(Protocol):
    """Told how far a call is: so much, of so much, in these words."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class State(enum.StrEnum):
    """How it is with a server."""

    PENDING = "pending"
    CONNECTED = "connected"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Connection:
    """A server and the way to it. `streams` makes the transport anew for each start, `why_ended` says what is known of
    the last one's end, `changed` is called when the server says that its tools are others now, and when it was started
    again, `died` when it ended by itself. `reviewed` waits until somebody has looked at what `changed` told of: no tool
    is called before. `turn` is held by each call that may change something. `refusals` has the tools that are not to be
    called, by the server's own names, and why."""

    server: McpServer
    streams: Callable[[], Streams]
    why_ended: Callable[[], str | None] = lambda: None
    elicit: Elicit | None = None
    changed: Callable[[], None] = lambda: None
    died: Callable[[], None] = lambda: None
    reviewed: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    state: State = State.PENDING
    error: str = ""
    starts: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    _calls: set[anyio.CancelScope] = field(default_factory=set)
    _elicited: int = 0
    _eliciting: bool = False
    _client: Client | None = None
    _began_s: float = 0.0
    _capable: frozenset[str] = frozenset()
    _settled: anyio.Event = field(default_factory=anyio.Event)
    _down: anyio.Event = field(default_factory=anyio.Event)
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _ended: anyio.Event = field(default_factory=anyio.Event)

    def begin(self, tasks: TaskGroup) -> None:
        """Start the owner task, and with it the server."""
        self._wanted.set()
        tasks.start_soon(self._own)

    async def settled(self) -> None:
        """Wait until it is connected, or has failed."""
        await self._settled.wait()

    async def close(self) -> None:
        """End it. Shielded, bounded, safe to call twice."""
        self.state = State.CLOSED  # from now on it has not failed, whatever becomes of it
        self._scope.cancel()
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
            if self.starts:
                await self._ended.wait()

    @property
    def start_left_s(self) -> float:
        """How much of the time that the server has to be there with its tools is left of its last start."""
        return max(0.0, self._began_s + self.server.startup_timeout_s - anyio.current_time())

    async def tools(self, within_s: float) -> tuple[list[mcp_types.Tool], list[tuple[str, str]]]:
        """What the server says its tools are, and what of that makes no sense: name and reason.

        Args:
            within_s: for all pages of the list together.

        Raises:
            ToolError: it does not say in time, or has more than may be.
        """
        found: list[mcp_types.Tool] = []
        left_out: list[tuple[str, str]] = []
        pages = await self.pages(
            lambda client, at: client.list_tools(cursor=at, cache_mode="refresh"),
            within_s,
            f"was not there with its tools within {self.server.startup_timeout_s:g} s",
            lambda pages: sum(len(page.tools) for page in pages) > MAX_TOOLS,
        )
        for page in pages:
            found += page.tools
            left_out += [(str(name), str(reason)) for name, reason in (page.meta or {}).get(LEFT_OUT, ())]
        whole = pages[-1].next_cursor is None
        if not whole or len(found) + len(left_out) > MAX_TOOLS:
            raise ToolError(f"it has over {MAX_TOOLS} tools, or over {MAX_PAGES} pages of them")
        return found, left_out

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progressed) -> mcp_types.CallToolResult:
        """Call a tool, by the server's own name, once its list is looked at.

        Raises:
            ToolError: it failed, or is not to be called; the text is for the model.
        """
        while True:
            client = await self._ready()
            await self.reviewed()
            if client is self._client:
                break  # else it died meanwhile: what is started in its place is looked at first, too
        if tool in self.refusals:
            raise ToolError(self.refusals[tool])
        return await self._put(
            client,
            lambda client: client.call_tool(tool, arguments, progress_callback=progressed),
            self.server.call_timeout_s,
            self._calls,
        )

    @property
    def identity(self) -> tuple[str, str]:
        """The protocol that was agreed on, and the server's own name and version; empty where it says none."""
        if self._client is None:
            return "", ""
        info = self._client.server_info
        shown = _one_line(f"{info.name} {info.version}")[:200] if info is not None else ""
        return clean(self._client.protocol_version)[:20], shown

    @property
    def has_resources(self) -> bool:
        """Whether the server says that it has resources, or said so when it was last there."""
        return "resources" in self._capable

    @property
    def has_prompts(self) -> bool:
        """The same of prompts."""
        return "prompts" in self._capable

    async def pages(
        self,
        question: Callable[[Client, str | None], Awaitable[Any]],
        within_s: float,
        slow: str,
        enough: Callable[[Sequence[Any]], bool],
    ) -> Sequence[Any]:
        """The pages of a list: so many at most, and all of them in this time, else a server that has always one more
        would hold up whoever waits. At least one.

        Raises:
            ToolError: see `ask`; or it took longer, which is told in the words of `slow`.
        """
        found: list[Any] = []
        with anyio.move_on_after(within_s):
            while len(found) < MAX_PAGES:
                cursor = found[-1].next_cursor if found else None
                found.append(await self.ask(partial(_at, question, cursor), math.inf))
                if found[-1].next_cursor is None or enough(found):
                    break
            return found
        raise ToolError(f"the server {self.server.name} {slow}")

    async def ask(self, question: Callable[[Client], Awaitable[Found]], timeout_s: float) -> Found:
        """Put one question to the server, which is started again if it has died since.

        Raises:
            ToolError: no answer: it is gone, too slow, or says no.
        """
        return await self._put(await self._ready(), question, timeout_s)

    async def _put(
        self,
        client: Client,
        question: Callable[[Client], Awaitable[Found]],
        timeout_s: float,
        waits: set[anyio.CancelScope] | None = None,
    ) -> Found:
        """`waits` holds the deadline meanwhile, for whoever wants to move it."""
        down = self._down
        found: list[Found] = []
        told: list[str] = []

        async def put() -> None:
            try:
                found.append(await question(client))
            except MCPError as exc:
                told.append(f"the server {self.server.name} says: {_one_line(exc.message)} (code {exc.code})")
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                await down.wait()
            except Exception as exc:  # noqa: BLE001 - whatever the package raises for what a server said is the server's
                told.append(f"the server {self.server.name} gave an answer that makes no sense: {_innermost(exc)}")
            group.cancel_scope.cancel()

        async def watch() -> None:
            await down.wait()
            group.cancel_scope.cancel()

        with anyio.move_on_after(timeout_s) as waiting:
            if waits is not None:
                waits.add(waiting)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(watch)
                    group.start_soon(put)
            finally:
                if waits is not None:
                    waits.discard(waiting)
        if found:
            return found[0]
        if waiting.cancelled_caught:
            raise ToolError(f"the server {self.server.name} did not answer within {timeout_s:g} s; it was told to stop")
        if told and not down.is_set():
            raise ToolError(told[0])
        raise ToolError(f"the server {self.server.name} is gone: {self.error or 'its connection closed'}")

    async def _ready(self) -> Client:
        await self._settled.wait()
        if self._client is None and self.state is not State.CLOSED and self.starts < MAX_STARTS:
            if self._settled.is_set():  # else another call has asked for it just now
                self._settled = anyio.Event()
                self._wanted.set()
            await self._settled.wait()
        if self._client is None:
            often = f" (started {self.starts} times)" if self.starts >= MAX_STARTS else ""
            raise ToolError(f"the server {self.server.name} is gone: {self.error or 'it was closed'}{often}")
        return self._client

    async def _own(self) -> None:
        try:
            with self._scope:
                while True:
                    await self._wanted.wait()
                    self._wanted = anyio.Event()
                    await self._live()
        finally:
            self._client = None
            self._down.set()
            self._settled.set()
            self._ended.set()

    async def _live(self) -> None:
        """One life of the server, from its start to its end; no error of it leaves this."""
        self.starts += 1
        self._began_s = anyio.current_time()
        self._down = anyio.Event()
        try:
            with anyio.fail_after(self.server.startup_timeout_s) as starting:
                async with self._connected() as client:
                    starting.deadline = float("inf")
                    self._client, self.state, self.error = client, State.CONNECTED, ""
                    able = client.server_capabilities
                    self._capable = frozenset(
                        kind for kind in ("resources", "prompts") if getattr(able, kind) is not None
                    )
                    self._settled.set()
                    if self.starts > 1:
                        self.changed()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._listen, client)
                        await self._down.wait()
                        tasks.cancel_scope.cancel()
        except TimeoutError:
            self.error = f"it was not there within {self.server.startup_timeout_s:g} s"
        except SandboxAgentError as exc:
            self.error = _one_line(str(exc))
        except Exception as exc:  # noqa: BLE001 - whatever the package raises for what a server does ends this life only
            self.error = self.why_ended() or _innermost(exc)
        finally:
            lived = self.state is State.CONNECTED
            self._client = None
            if self.state is not State.CLOSED:
                self.state = State.FAILED
            self._down.set()
            if lived and not self._scope.cancel_called:
                self.died()
            if not self._wanted.is_set():  # else somebody waits already for the next life
                self._settled.set()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        client = Client(
            WatchedTransport(self.streams, self._lost),
            client_info=mcp_types.Implementation(name="sandbox-agent", version=__version__),
            message_handler=self._heard,
            elicitation_callback=self._asked if self.elicit is not None else None,
            cache=None,
        )
        async with client:
            yield client

    async def _listen(self, client: Client) -> None:
        """Servers of the newest protocol tell of changes only to whoever listens."""
        capability = client.server_capabilities.tools
        if client.protocol_version < "2026" or capability is None or not capability.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.changed()
        except (MCPError, RuntimeError, OSError):
            return  # it says nothing then; what it does is checked all the same at the next start

    def _lost(self) -> None:
        """Its output ended: nobody is going to answer."""
        self.error = self.why_ended() or "its connection closed"
        self._client = None
        self._down.set()

    async def _heard(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.changed()

    async def _asked(self, context: Any, params: Any) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Only during a call, one question at a time, so many in all. The call's time stands still meanwhile."""
        form = isinstance(params, mcp_types.ElicitRequestFormParams)
        if self.elicit is None or not form or not self._calls or self._eliciting or self._elicited >= MAX_ELICITATIONS:
            return mcp_types.ElicitResult(action="decline")
        self._elicited += 1
        self._eliciting = True
        began_s = anyio.current_time()
        left = {scope: scope.deadline for scope in self._calls}
        try:
            for scope in left:
                scope.deadline = float("inf")
            asked = params.model_dump(mode="json", by_alias=True, exclude_none=True)
            schema = asked.get("requestedSchema") or {}
            answer = await self.elicit(self.server.name, clean(params.message), schema)
        finally:
            self._eliciting = False
            for scope, deadline in left.items():
                scope.deadline = deadline + anyio.current_time() - began_s
        if answer is None:
            return mcp_types.ElicitResult(action="decline")
        return mcp_types.ElicitResult(action="accept", content=_defaults(schema) | answer)


def _at(question: Callable[[Client, str | None], Awaitable[Any]], cursor: str | None, client: Client) -> Awaitable[Any]:
    return question(client, cursor)


def _defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """What the server itself takes for fields that are left out."""
    fields = schema.get("properties")
    named = fields.items() if isinstance(fields, dict) else ()
    return {name: field["default"] for name, field in named if isinstance(field, dict) and "default" in field}


def _innermost(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    if isinstance(exc, ValidationError):
        fault = exc.errors(include_url=False, include_input=False)[0]
        return _one_line(f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}")
    return _one_line(str(exc)) or type(exc).__name__


def _one_line(text: str) -> str:
    line = " ".join(clean(text[:2_000]).split())
    return line if len(line) <= 500 else line[:500] + " ..."
