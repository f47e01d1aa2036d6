"""A session for a frozen replay: the real loop, gate, tools and sub-agents, with nothing behind them.

There is no container, no workspace and no network: whatever would ask one is answered from the bundle before, and what
comes through all the same is refused. It has a folder of its own for its record, which goes with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent import registry
from sandbox_agent.engine import offered, session_hooks
from sandbox_agent.engine.child import with_types
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.own_tools import pool_of
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.engine.session import Rights, Session
from sandbox_agent.engine.subagents import Team
from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.base import SandboxInfo
from sandbox_agent.tape import TapeWriter
from sandbox_agent.tools.base import Tool, ToolContext, build_tool
from sandbox_agent.tools.pool import ToolPool, assemble_tool_pool
from sandbox_agent.types import JsonObject, Subject, ToolResult, WorkspaceMount
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Drift, Owner
from sandbox_agent.workspaces.hunks import Span

_MCP = "mcp__"


@asynccontextmanager
async def open_frozen(replay: Replaying) -> AsyncIterator[Session]:
    """A session that replays a bundle without an engine.

    Raises:
        ReplayMismatchError, ConfigError: something in the lock cannot be used.
    """
    lock = replay.bundle.lock
    host = str(lock["workspace_host"])
    sandbox = NoSandbox(lock)
    schema = lock.get("answer_schema")
    answer = registry.load("engine", "structured").StructuredAnswer(schema) if schema is not None else None
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-replay-") as name:
        folder = Path(name)
        tape = TapeWriter(folder / EVENTS_FILE)
        held = SessionLock(folder)
        try:
            async with anyio.create_task_group() as tasks:
                session = Session(
                    id=str(lock["session"]),
                    model=replay.model(None),
                    sandbox=sandbox,
                    workspace=NoWorkspace(Path(host)),
                    pool=with_types(pool_of(replay.policy, (answer.tool,) if answer else ()), replay.types),
                    rights=Rights(replay.policy),
                    mode=replay.policy.mode,
                    limits=replay.policy.limits,
                    ctx=ToolContext(sandbox=sandbox, workspace_host=host, by_name=bool(lock["environment"])),
                    system=tuple(lock["system"]),
                    tape=tape,
                    lock=held,
                    tasks=tasks,
                    # What stood for a secret on the tape is no secret any more, and there is none here.
                    secrecy=Secrecy({}),
                    approver=replay.approve if lock["approver"] else None,
                    fallback=lock["fallback"],
                    proof=replay,
                )
                opens = (lambda host, port: True) if replay.policy.sandbox.allow_hosts else None
                offered.attach(session, ask=replay.ask if lock["ask"] else None, opens=opens, planned=False)
                Team(replay.types, replay.policy.limits, session.jobs).attach(session)
                session.pool = _with_servers(session.pool, lock)
                if answer is not None:
                    session.answer = answer
                    session_hooks.attach(session, (answer.hook,))
                yield session
                await session.jobs.close()
                tasks.cancel_scope.cancel()
        finally:
            tape.close()
            held.release()


def _with_servers(pool: ToolPool, lock: JsonObject) -> ToolPool:
    """The pool with the tools of MCP servers as they were offered."""
    listed = [one for one in lock["tools"] if str(one["name"]).startswith(_MCP)]
    if not listed:
        return pool
    merged = assemble_tool_pool(pool.tools, [_tool(one, lock["foreign"]) for one in listed])
    return ToolPool(merged.tools, merged.dropped, pool.absent)


def _tool(definition: JsonObject, foreign: Mapping[str, JsonObject]) -> Tool:
    name = str(definition["name"])
    about = foreign[name]
    only_reads = bool(about["read_only"])

    async def run(value: Any, ctx: ToolContext) -> ToolResult:
        raise SandboxUnavailableError(f"{name}: no server is there in a frozen replay")

    tools = registry.load("mcp", "schemas")
    return build_tool(
        name=name,
        description=str(definition["description"]),
        input_model=tools.input_model(definition["input_schema"]),
        run=run,
        read_only=only_reads,
        parallel_safe=only_reads,
        subject=lambda value, ctx: Subject(summary=name),
        source=str(about["source"]),
        input_schema=definition["input_schema"],
    )


class NoSandbox:
    """Stands where a container would: it starts, and does nothing."""

    restarts = 0

    def __init__(self, lock: JsonObject) -> None:
        self._info = SandboxInfo("", str(lock["image"]), "none: a frozen replay", "none", 0, 0)

    async def start(self) -> SandboxInfo:
        """There is nothing to start."""
        return self._info

    async def close(self) -> None:
        """There is nothing to remove."""

    async def _none(self, *_: Any, **__: Any) -> Any:
        raise SandboxUnavailableError("there is no container in a frozen replay, and the bundle has no answer to this")

    exec = exec_apart = open = resolve = read_file = replace_file = end_all = give_back = _none


class NoWorkspace:
    """Stands where a workspace would."""

    mode = "frozen"
    mount: WorkspaceMount = "/nonexistent"
    owner = Owner(0, 0)
    notes: tuple[str, ...] = ()
    masked: Mapping[str, str] = {}
    covers: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    mount_waits = False

    def __init__(self, host: Path) -> None:
        self.host = host

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        """Nothing."""

    def changes(self) -> tuple[Change, ...]:
        return ()

    def changes_at(self, step: int) -> tuple[Change, ...]:
        return ()

    def drift(self) -> tuple[Drift, ...]:
        return ()

    def apply(
        self, paths: Collection[str] | None = None, hunks: Mapping[str, Collection[Span]] | None = None
    ) -> ApplyOutcome:
        return ApplyOutcome()

    def settle(self) -> ApplyOutcome | None:
        return None

    def release(self) -> None:
        """Nothing."""

    def discard(self) -> None:
        """Nothing."""
