"""The beginning of a session that has been put together: its first entry, what is told, its disk, its container.

`engine.open` calls these in turn; nothing here decides what a session is made of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sandbox_agent import __version__
from sandbox_agent.config import RunConfig
from sandbox_agent.engine import egress
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.container import facts_of
from sandbox_agent.engine.disk import DiskLimit
from sandbox_agent.engine.drifting import look_now_and_then
from sandbox_agent.engine.own_tools import told
from sandbox_agent.engine.past import Past, take_up
from sandbox_agent.engine.placement import AUTO, Placement, forget
from sandbox_agent.engine.reaping import reap_workspaces
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxAgentError, SandboxStartError
from sandbox_agent.events import Notice, SandboxReady, SessionStarted
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.workspaces.record import Record


def begin(
    session: Session,
    config: RunConfig,
    settings: SandboxSettings,
    past: Past | None,
    placement: Placement | None,
    servers: tuple[dict[str, str], ...],
) -> None:
    """Write the first entry of the run; a session that goes on takes up what it was."""
    session.emit(
        SessionStarted(
            session_id=session.id,
            model=config.model,
            workspace=str(session.workspace.host),
            workspace_mode=session.workspace.mode,
            image=settings.image,
            policy=session.policy.name,
            mode=session.mode.value,
            tools=tuple(tool.name for tool in session.pool.tools),
            version=__version__,
            resumed_from=past.session_id if past else None,
            sandbox=facts_of(settings),
            mcp_servers=servers,
        )
    )
    if placement is not None and config.workspace_mode == AUTO:
        session.emit(Notice(level="info", text=placement.line))
    session.pass_on_notes()
    if past is None:
        return
    take_up(session, past)
    for warning in filter(None, (past.warning, past.moved_to(session.workspace.host))):
        session.emit(Notice(level="warning", text=warning))


def tell(session: Session, settled: Sequence[str]) -> None:
    """What the person should know before anything runs; `settled` is of earlier sessions."""
    for line in settled:
        session.emit(Notice(level="warning", text=line))
    for line in (*(f"policy: {line}" for line in session.policy.notes), *told(session.pool)):
        session.emit(Notice(level="info", text=line))


def bound_disk(session: Session, folder: Path, settings: SandboxSettings) -> None:
    """Limit what the session may write, and watch where the limit does not hold by itself."""
    disk_bytes = Record.load(folder).disk_bytes or settings.disk_bytes
    session.disk = DiskLimit(session.workspace, session.sandbox, folder, disk_bytes)
    if session.disk.warning is not None:
        session.emit(Notice(level="warning", text=session.disk.warning))
    if session.disk.watched:
        session.tasks.start_soon(session.disk.watch)


def start(session: Session, folder: Path, past: Past | None, way_out: egress.WayOut | None) -> None:
    """Have the container start, its checkpoints and its way out with it."""
    tape = session.tape
    session.checkpoints = Checkpoints(
        session.sandbox,
        session.workspace,
        folder,
        emit=session.emit,
        last_seq=lambda: tape.last_seq,
        effects=session.effects,
    )
    session.tasks.start_soon(_start_sandbox, session, tape.last_seq, past.last_step if past else -1)
    if way_out is not None:
        session.tasks.start_soon(way_out.serve, session)


async def _start_sandbox(session: Session, after_seq: int, recorded: int) -> None:
    started = time.monotonic()
    try:
        info = await session.sandbox.start()
    except SandboxAgentError as exc:
        if isinstance(exc, SandboxStartError):
            forget()
        session.checkpoints = None
        session.fail(exc)
        return
    session.pass_on_notes()
    session.emit(
        SandboxReady(
            container_id=info.id,
            isolation=info.isolation,
            transport=info.transport,
            start_s=time.monotonic() - started,
        )
    )
    for line in info.notes:
        session.emit(Notice(level="info", text=line))
    if session.checkpoints is not None:
        try:
            await session.checkpoints.begin(after_seq=after_seq, recorded=recorded)
        except SandboxAgentError as exc:
            session.fail(exc)
            return
    session.tasks.start_soon(look_now_and_then, session.tell_drift)
    try:
        await reap_workspaces()
    except (SandboxAgentError, OSError) as exc:
        session.emit(Notice(level="info", text=f"what earlier sessions left could not be removed: {exc}"))
