"""One turn's tool calls, from the model's blocks to the results message: parse, batch, judge, run, cap."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from sandbox_agent.engine import call_hooks, gate, history
from sandbox_agent.engine.effects import Doing
from sandbox_agent.engine.metering import metered
from sandbox_agent.engine.preparing import prepare
from sandbox_agent.engine.requests import binding, digest
from sandbox_agent.engine.scheduler import Call, holds, partition, run_batch
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ToolError
from sandbox_agent.events import ToolFinished, ToolResultsMessage, ToolStarted
from sandbox_agent.models.base import Answer
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import as_call
from sandbox_agent.tools.cap import cap
from sandbox_agent.tools.validation import parse_input, unknown_tool
from sandbox_agent.types import ToolResult, ToolUse, Verdict


def uses_of(answer: Answer) -> list[ToolUse]:
    """The tool_use blocks of an answer, in order."""
    return [
        ToolUse(str(block["id"]), str(block["name"]), block.get("input") or {}, answer.malformed.get(str(block["id"])))
        for block in answer.content
        if block.get("type") == "tool_use"
    ]


async def run_calls(session: Session, uses: Sequence[ToolUse]) -> None:
    """Run all calls of a turn and put their results, in call order, into the conversation as one message.

    Also when cancelled or when the sandbox dies: calls without a result by then get the "interrupted" one.
    """
    results: dict[str, ToolResult] = {}
    changing: list[str] = []
    try:
        calls = [_prepare(session, use) for use in uses]
        await prepare(calls)
        for number, batch in enumerate(partition(calls)):
            await _run_judged(session, batch, number, results, changing)
    finally:
        for use in uses:
            if use.id not in results:
                _finish(session, use, ToolResult(history.INTERRUPTED, is_error=True), 0.0, results)
        _emit_results(session, uses, results)
        session.checkpoint_soon(changing)


def refuse_calls(session: Session, uses: Sequence[ToolUse], reason: str) -> None:
    """Answer all calls of a turn with an error without running any."""
    results: dict[str, ToolResult] = {}
    for use in uses:
        _finish(session, use, ToolResult(reason, is_error=True), 0.0, results)
    _emit_results(session, uses, results)


def _prepare(session: Session, use: ToolUse) -> Call:
    tool = session.pool.get(use.name)
    if tool is None and session.policy.hiding(use.name) is not None:
        return Call(use)  # the gate denies it, so that it counts as denied and not as a slip of the model
    if tool is None:
        return Call(use, refused=ToolResult(unknown_tool(use.name, session.pool), is_error=True))
    parsed = parse_input(tool, use)
    if isinstance(parsed, str):
        return Call(use, tool, refused=ToolResult(parsed, is_error=True))
    mark = session.secrecy.redactor.marks_in(use.input) if holds(tool.edits, parsed) else None
    if mark is not None:
        return Call(use, tool, refused=ToolResult(prompt("engine/masked_mark").format(mark=mark), is_error=True))
    return Call(use, tool, parsed)


async def _run_judged(
    session: Session, batch: Sequence[Call], number: int, results: dict[str, ToolResult], changing: list[str]
) -> None:
    """Run what is allowed of a batch; the calls among that which may change something are added to `changing`."""
    if any(call.refused is None for call in batch):
        await session.sandbox.start()  # begun long ago: this waits for it
    allowed: list[gate.Judged] = []
    for judged in await gate.judge(session, batch):
        call = judged.call
        if call.refused is not None:
            _finish(session, call.use, call.refused, 0.0, results)
        elif judged.decision.verdict is Verdict.ALLOW:
            allowed.append(judged)
        else:
            refused = call_hooks.with_notes(gate.refusal(judged.decision), judged.notes)
            _finish(session, call.use, refused, 0.0, results)
    doings = {judged.call.use.id: _doing(session, judged, number) for judged in allowed}
    running = {judged.call.use.id: judged for judged in allowed}

    async def run_one(call: Call) -> None:
        doing = doings[call.use.id]
        masked = session.secrecy.redactor.holds(call.use.input)
        session.emit(
            ToolStarted(
                agent_id=session.agent_id,
                call_id=call.use.id,
                tool=call.use.name,
                summary=doing.summary,
                input=call.use.input,
                batch=number,
                unmasked_sha256=digest(call.use.name, call.use.input) if masked else None,
            )
        )
        started = time.monotonic()
        session.effects.begin(doing)
        result = None
        try:
            with metered(doing.meter), as_call(call.use.id):
                result = await _run_tool(session, running[call.use.id])
        finally:
            session.effects.end(doing, result)
        if doing.refusals:
            note = prompt("engine/egress_refused").format(refusals="; ".join(doing.refusals))
            result = call_hooks.with_notes(result, (note,))
        duration_s = time.monotonic() - started
        await _conclude(session, running[call.use.id], result, duration_s, results)

    changing += [doing.call_id for doing in doings.values() if not doing.read_only]
    # Once more: what a hook rewrote may no longer run beside others.
    for together in partition([judged.call for judged in allowed]):
        async with _lane(session, [doings[call.use.id] for call in together]):
            await session.ready_for([doings[call.use.id] for call in together])
            await run_batch(together, run_one)


@asynccontextmanager
async def _lane(session: Session, doings: Sequence[Doing]) -> AsyncIterator[None]:
    """The write lane, for calls that may change something: those of all agents run one after the other."""
    if all(doing.read_only for doing in doings):
        yield
        return
    async with session.rights.lane:
        yield


async def _conclude(
    session: Session, judged: gate.Judged, result: ToolResult, duration_s: float, results: dict[str, ToolResult]
) -> None:
    """The hooks after a call, and its end. An interrupted hook takes nothing away from a call that has run."""
    notes: tuple[str, ...] = judged.notes
    try:
        notes += await call_hooks.after(session, judged.call, judged.subject, result)
    finally:
        _finish(session, judged.call.use, call_hooks.with_notes(result, notes), duration_s, results)


def _doing(session: Session, judged: gate.Judged, batch: int) -> Doing:
    tool = judged.call.tool
    assert tool is not None
    return Doing(
        call_id=judged.call.use.id,
        tool=judged.call.use.name,
        summary=judged.subject.summary,
        agent_id=session.agent_id,
        parent_id=session.parent.agent_id if session.parent is not None else None,
        batch=batch,
        read_only=holds(tool.read_only, judged.call.input),
        runs_programs=judged.subject.command is not None or tool.source != "builtin",
    )


async def _run_tool(session: Session, judged: gate.Judged) -> ToolResult:
    """The one place where a tool runs: with exactly what the gate allowed, or not at all."""
    call = judged.call
    assert call.tool is not None
    if binding(call) != judged.bound:
        return ToolResult("The call was changed after it was allowed, so it was not run.", is_error=True)
    try:
        with anyio.fail_after(call.tool.timeout_s):
            result = await _within_disk(session, partial(call.tool.run, call.input, session.ctx))
    except ToolError as exc:
        result = ToolResult(str(exc), is_error=True)
    except TimeoutError:
        text = f"{call.tool.name} did not finish within {call.tool.timeout_s} s and was stopped."
        result = ToolResult(text, is_error=True, meta={"timed_out": True})
    except OSError as exc:
        # Of the sandbox's verbs, where a tool has no better text: a command can kill what carries them out at any time.
        result = ToolResult(f"{call.tool.name} failed: {exc.strerror or exc}", is_error=True)
    return cap(result, call.tool.max_result_chars)


async def _within_disk(session: Session, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """What the call gives, or that it took too much of the disk; with the figures where it ran into that limit."""
    if session.disk is None:
        return await run()
    result = ToolResult("")
    with session.disk.guarding() as guarded:
        try:
            result = await run()
        except ToolError as exc:
            result = ToolResult(str(exc), is_error=True)
    if guarded.told is not None:
        return ToolResult(guarded.told, is_error=True, meta={"disk_limit": True})
    note = await session.disk.note_on(result)
    return call_hooks.with_notes(result, (note,)) if note is not None else result


def _finish(
    session: Session, use: ToolUse, result: ToolResult, duration_s: float, results: dict[str, ToolResult]
) -> None:
    results[use.id] = result
    session.emit(
        ToolFinished(
            agent_id=session.agent_id,
            call_id=use.id,
            tool=use.name,
            content=result.content,
            is_error=result.is_error,
            duration_s=duration_s,
            meta=result.meta,
        )
    )


def _emit_results(session: Session, uses: Sequence[ToolUse], results: dict[str, ToolResult]) -> None:
    blocks = tuple(history.result_block(use.id, results[use.id]) for use in uses)
    session.emit(ToolResultsMessage(agent_id=session.agent_id, content=blocks))
