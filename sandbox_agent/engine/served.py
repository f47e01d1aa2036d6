"""Sessions for programs that bring their own model: calls come in one by one, and become turns of a session.

What runs goes the way of every call: gate, hooks, checkpoints, record. So `sessions show`, `audit`, `undo`, `diff` and
`apply` work on such a session as on any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from sandbox_agent.config import RunConfig
from sandbox_agent.engine import session_hooks
from sandbox_agent.engine.answers import check_answer
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, NobodyAnswersError
from sandbox_agent.engine.child import without
from sandbox_agent.engine.forking import fork
from sandbox_agent.engine.history import interrupted
from sandbox_agent.engine.loop import Progress, conclude
from sandbox_agent.engine.open import bare, open_session, policy_of
from sandbox_agent.engine.own_tools import pool_of
from sandbox_agent.engine.previewing import SoFar, changes_so_far
from sandbox_agent.engine.served_calls import Call, Errand, Served
from sandbox_agent.engine.serving import CALLER, MAX_WAITING, listen, serve
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ModelError, SandboxAgentError, SandboxError, ToolError
from sandbox_agent.models.absent import AbsentModel
from sandbox_agent.models.base import Answer
from sandbox_agent.prompts import prompt
from sandbox_agent.types import JsonObject, ToolResult, Usage
from sandbox_agent.workspaces.base import ApplyOutcome

TOOLS = ("Bash", "Read", "Write", "Edit", "Grep", "Glob", "TaskOutput", "TaskStop")
"""Those that a client gets."""

MAX_SESSIONS = 8

END_S = 3.5
"""For a session to end by itself; with the removal of its container it stays under 5 s."""


@asynccontextmanager
async def open_desk(
    config: RunConfig, folders: Sequence[Path], tell: Callable[[str], None], *, allow_apply: bool = False
) -> AsyncIterator[Desk]:
    """A desk; its sessions are ended and their containers removed on the way out.

    Args:
        config: of every session; its workspace is the folder of the first one.
        folders: all folders that a session may be opened on.
        tell: takes lines for the person.
        allow_apply: whether a client may bring changes to the folders.
    """
    try:
        async with anyio.create_task_group() as tasks:
            desk = Desk(config, folders, tell, tasks, allow_apply=allow_apply)
            try:
                yield desk
            finally:
                with anyio.CancelScope(shield=True):
                    await desk.close()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise bare(group) from None


class Desk:
    """Takes calls for sessions, opening the first one when it is needed."""

    def __init__(
        self,
        config: RunConfig,
        folders: Sequence[Path],
        tell: Callable[[str], None],
        tasks: TaskGroup,
        *,
        allow_apply: bool,
    ) -> None:
        self.allow_apply = allow_apply
        self._config = replace(config, model=CALLER, fallback_model=None, project_instructions=False, mcp_servers=())
        self._tell = tell
        self._tasks = tasks
        self._default: str | None = None
        self._sessions: dict[str, Served] = {}
        self._calls: dict[str, Call] = {}
        self._opening = anyio.Lock()
        self._closed = False
        self.folders = {str(folder.resolve()): folder for folder in (config.workspace, *folders)}

    @property
    def sessions(self) -> tuple[Served, ...]:
        """Those that are open."""
        return tuple(self._sessions.values())

    def definitions(self) -> list[JsonObject]:
        """The tools that a client gets, as the Messages API takes them.

        Raises:
            ConfigError: the policy cannot be used.
        """
        pool = pool_of(policy_of(self._config), ())
        return [tool.definition() for name in TOOLS if (tool := pool.get(name)) is not None]

    @property
    def default(self) -> str | None:
        """The session of calls that name none; None before the first one."""
        return self._default

    async def submit(self, name: str, given: JsonObject, session_id: str | None, *, can_ask: bool) -> Call:
        """Take a call.

        Raises:
            ToolError: it cannot be taken; the text is for the client.
            SandboxAgentError: there is no session, and none can be opened.
        """
        served = await self._find(session_id)
        call = Call(name, given, can_ask=can_ask)
        block = {"type": "tool_use", "id": call.use.id, "name": name, "input": given}
        try:
            check_answer(Answer((block,), "tool_use", Usage(), CALLER), ())
        except ModelError as exc:
            raise ToolError(str(exc)) from exc
        if len(served.waiting) >= MAX_WAITING:
            raise ToolError(f"{MAX_WAITING} calls wait in this session already; wait for their results first")
        served.calls += 1
        self._calls[call.use.id] = call
        served.put(call)
        return call

    def withdraw(self, call: Call) -> None:
        """The client does not want the call any more: it is ended, and nothing else is."""
        for served in self._sessions.values():
            if call in served.waiting:
                served.waiting.remove(call)
            elif call in served.running:
                served.session.withdrawn.add(call.use.id)
        if call.question is not None:
            call.answer(ApprovalAnswer(False, reason="the call was cancelled", by="person"))
        call.end(interrupted())
        self._calls.pop(call.use.id, None)

    async def create(self, folder: str | None) -> Served:
        """Open another session.

        Args:
            folder: one of `folders`, as given; None is the first one.

        Raises:
            ToolError: that is none of them, or there are too many sessions.
            SandboxAgentError: it cannot be opened.
        """
        workspace = self._config.workspace if folder is None else self._folder(folder)
        return await self._open(replace(self._config, workspace=workspace))

    async def fork(self, session_id: str | None, step: int | None) -> Served:
        """Open a session that begins where another one is, or was at a step.

        Raises:
            ToolError, SandboxAgentError: see `create`; or there is no such session or step.
        """
        served = await self._find(session_id)
        self._check_room()

        async def at_rest(session: Session) -> str:
            number = (await changes_so_far(session, resting=True)).step if step is None else step
            await anyio.to_thread.run_sync(session.tape.sync)
            return (await anyio.to_thread.run_sync(fork, session.id, number)).session_id

        child: str = await self._at_rest(served, at_rest)
        return await self._open(replace(self._config, workspace=served.session.workspace.host, resume=child))

    async def diff(self, session_id: str | None) -> SoFar:
        """What a session has changed.

        Raises:
            ToolError, SandboxAgentError: there is no such session, or it cannot be told.
        """

        async def at_rest(session: Session) -> SoFar:
            return await changes_so_far(session, resting=True)

        found: SoFar = await self._at_rest(await self._find(session_id), at_rest)
        return found

    async def apply(self, session_id: str | None, paths: Sequence[str] | None) -> ApplyOutcome:
        """Bring what a session changed to its folder, which ends the session.

        Raises:
            ToolError: the person has not allowed it, or there is no such session.
            SandboxAgentError: it cannot be done.
        """
        if not self.allow_apply:
            raise ToolError("changes are applied by the person only (start the server with --allow-apply to allow it)")
        served = await self._find(session_id)

        async def at_rest(session: Session) -> ApplyOutcome:
            there = {change["path"] for change in (await changes_so_far(session, resting=True)).changes}
            unknown = sorted(set(paths or ()) - there)
            if unknown:
                raise ToolError(f"{', '.join(unknown)}: no such change; nothing was applied")
            served.closing = True
            await session.changes()
            return await session.apply(paths)

        outcome: ApplyOutcome = await self._at_rest(served, at_rest)
        await served.ended.wait()
        return outcome

    async def end(self, session_id: str) -> None:
        """End a session; what it changed is kept for the person.

        Raises:
            ToolError: there is no such session.
        """
        served = await self._find(session_id)
        served.close()
        await served.ended.wait()

    async def close(self) -> None:
        """End all sessions, side by side, within a few seconds. Shield this."""
        self._closed = True
        with anyio.move_on_after(END_S):
            for served in self.sessions:
                served.close()
            for served in self.sessions:
                await served.ended.wait()

    async def _find(self, session_id: str | None) -> Served:
        if self._closed:
            raise ToolError("the server is ending")
        wanted = session_id or self._default
        if session_id is None:
            async with self._opening:
                wanted = self._default
                if wanted not in self._sessions:
                    wanted = self._default = (await self._open(self._config)).id
        served = self._sessions.get(wanted or "")
        if served is None or served.closing:
            raise ToolError(f"there is no open session {session_id!r}; those that are open: {self._open_ids()}")
        return served

    def _open_ids(self) -> str:
        return ", ".join(self._sessions) or "none"

    def _folder(self, wanted: str) -> Path:
        for resolved, folder in self.folders.items():
            if wanted in (resolved, str(folder)):
                return folder
        named = ", ".join(self.folders)
        raise ToolError(f"{wanted!r} is none of the folders that the server was started with (-w): {named}")

    def _check_room(self) -> None:
        if len(self._sessions) >= MAX_SESSIONS:
            raise ToolError(f"{MAX_SESSIONS} sessions are open, and more may not be; close one first")

    async def _open(self, config: RunConfig) -> Served:
        self._check_room()
        if config.workspace_mode == "bind" and any(
            one.session.workspace.host.resolve() == config.workspace.resolve() for one in self.sessions
        ):
            raise ToolError("a session works on this folder directly (--workspace-mode bind): there can be one writer")
        served: Served | SandboxAgentError = await self._tasks.start(self._own, config)
        if isinstance(served, SandboxAgentError):
            raise served
        return served

    async def _own(
        self, config: RunConfig, *, task_status: TaskStatus[Served | SandboxAgentError] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """The life of one session; it is entered and left in this task."""
        served: Served | None = None
        try:
            async with open_session(config, approver=self._approve, caller=AbsentModel(CALLER)) as session:
                served = Served(session.id, session)
                self._sessions[session.id] = served
                session.pool = without(
                    session.pool, {one.name for one in session.pool.tools} - set(TOOLS), prompt("served/no_such_tool")
                )
                session.tasks.start_soon(listen, session, self._calls, self._tell)
                session.budget.begin()
                await session.secrecy.known()
                if not session.messages:
                    session.say(prompt("served/in_the_record"))
                await session_hooks.begin(session)
                self._tell(f"session {session.id} on {session.workspace.host}")
                task_status.started(served)
                progress = Progress()
                try:
                    await serve(served, progress)
                finally:
                    conclude(session, progress)
                    session.hang_up()
        except (SandboxAgentError, OSError) as exc:  # of this session; the others go on
            if served is None:
                task_status.started(exc if isinstance(exc, SandboxAgentError) else SandboxError(str(exc)))
            else:
                self._tell(f"session {served.id}: {exc}")
        finally:
            if served is not None:
                self._gone(served)

    def _gone(self, served: Served) -> None:
        self._sessions.pop(served.id, None)
        if self._default == served.id:
            self._default = None
        fault = served.session.fault
        text = f"the session {served.id} has ended" + (f": {fault}" if fault is not None else "")
        for one in (*served.running, *served.waiting):
            if isinstance(one, Call):
                one.end(ToolResult(text, is_error=True))
            else:
                one.done.set()
        served.ended.set()

    async def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        call = self._calls.get(request.call_id)
        if call is None:
            raise NobodyAnswersError
        return await call.ask(request)

    async def _at_rest(self, served: Served, do: Callable[[Session], Awaitable[Any]]) -> Any:
        errand = Errand(do)
        served.put(errand)
        await errand.done.wait()
        if errand.fault is not None:
            raise errand.fault
        return errand.found
