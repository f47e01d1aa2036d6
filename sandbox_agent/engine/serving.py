"""The turns of a served session: calls that came close after one another run as one turn, errands between turns."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from sandbox_agent.engine.call_hooks import with_notes
from sandbox_agent.engine.calls import run_calls
from sandbox_agent.engine.loop import Progress
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.served_calls import Call, Errand, Served
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import AssistantMessage, Notice, ToolFinished, UserMessage
from sandbox_agent.types import ToolResult, Usage

CALLER = "mcp client"
"""What the record has in place of the model's name."""

MAX_WAITING = 100
GATHER_S = 0.003
"""Calls that come within this time after one another form one turn."""

REVIEW_S = 1.5
"""For the look at the changes at the end, of the 5 s that an end may take."""


async def serve(served: Served, progress: Progress) -> None:
    """Do what is put to the session in turn, until it is closed or its container dies; then look at its changes."""
    session = served.session
    with anyio.CancelScope() as session.scope:
        while not served.closing and session.fault is None:
            if not served.waiting:
                await served.woken.wait()
                served.woken = anyio.Event()
                await _gathered(served)
                continue
            await _next(served, progress)
    session.scope = None
    progress.stop = "denied" if session.denials else "done"
    if session.fault is not None:
        progress.stop, progress.error, progress.fault = "sandbox_error", str(session.fault), session.fault
    elif session.unapplied is None:
        with anyio.move_on_after(REVIEW_S):
            await session.changes()


async def _next(served: Served, progress: Progress) -> None:
    """Do one errand, or all calls that came before the next one."""
    first = served.waiting[0]
    if isinstance(first, Errand):
        served.waiting.pop(0)
        try:
            first.found = await first.do(served.session)
            first.fault = None
        except SandboxAgentError as exc:
            first.fault = exc
        finally:
            first.done.set()
        return
    while served.waiting and isinstance(call := served.waiting[0], Call):
        served.running.append(call)
        served.waiting.pop(0)
    session, uses = served.session, [call.use for call in served.running]
    for message in session.queue.take(Priority.LATER):  # of jobs that have ended
        session.emit(UserMessage(agent_id=session.agent_id, content=message.content))
    content = tuple({"type": "tool_use", "id": use.id, "name": use.name, "input": use.input} for use in uses)
    session.emit(
        AssistantMessage(
            agent_id=session.agent_id, content=content, stop_reason="tool_use", model=CALLER, usage=Usage()
        )
    )
    progress.turns += 1
    await run_calls(session, uses)
    for call in served.running:
        await call.news()  # its end was emitted, and is on its way
    served.running.clear()
    session.sync_soon()


async def _gathered(served: Served) -> None:
    """Wait until no more comes for a moment."""
    known = -1
    while known != len(served.waiting) <= MAX_WAITING:
        known = len(served.waiting)
        await anyio.sleep(GATHER_S)


async def listen(session: Session, calls: dict[str, Call], tell: Callable[[str], None]) -> None:
    """Give each of the calls its result as it comes, and the person what is to be known; until the session hangs up."""
    notes: list[str] = []
    turns = 0
    with session.listen() as events:
        async for event in events:
            match event:
                case AssistantMessage():
                    turns += 1
                case UserMessage(content=content) if turns:
                    # A client hears of what it was not told in a result with the next one.
                    notes += [str(block["text"]) for block in content if block.get("type") == "text"]
                case ToolFinished(call_id=call_id, content=content, is_error=is_error):
                    call = calls.pop(call_id, None)
                    if call is not None:
                        call.end(with_notes(ToolResult(content, is_error=is_error), tuple(notes)))
                        notes.clear()
                case Notice(level="warning", text=text):
                    tell(f"session {session.id}: {text}")
                case _:
                    pass
