"""One turn's tool calls, from the model's blocks to the results message: parse, batch, judge, run, cap."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import anyio

from sandbox_agent.engine import call_hooks, gate, history
from sandbox_agent.engine.effects import Doing
from sandbox_agent.engine.metering import metered
from sandbox_agent.engine.preparing import prepare
from sandbox_agent.engine.proof import one_by_one
from sandbox_agent.engine.requests import binding, digest
from sandbox_agent.engine.scheduler import Begun, Call, holds, partition, run_batch
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ToolError
from sandbox_agent.events import ToolFinished, ToolResultsMessage, ToolStarted
from sandbox_agent.models.base import Answer
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, as_call
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


async def run_calls(session: Session, uses: Sequence[ToolUse], begun: Mapping[str, Begun] | None = None) -> None:
    """Run all calls of a turn and put their results, in call order, into the conversation as one message.

    Also when cancelled or when the sandbox dies: calls without a result by then get the "interrupted" one. `begun` are
    those of its head that run already, by id.
    """
    begun = begun or {}
    results: dict[str, ToolResult] = {}
    changing: list[str] = []
    try:
        calls = [begun[use.id].call if use.id in begun else prepared(session, use) for use in uses]
        await prepare(calls)
        for number, batch in enumerate(partition(calls) if session.proof is None else one_by_one(calls)):
            async with session.proof.turn(session, batch) if session.proof is not None else nullcontext():
                await _run_judged(session, batch, number, results, changing, begun)
    finally:
        for call_id, one in begun.items():
            if call_id not in results and (result := one.take(session.ctx)) is not None:
                results[call_id] = result
        for use in uses:
            if use.id not in results:
                sub_agent = session.ctx.agents.at_work_for(use.id) if session.ctx.agents is not None else None
                _finish(session, use, history.interrupted(sub_agent), 0.0, results)
        _emit_results(session, uses, results)
        session.checkpoint_soon(changing)


def refuse_calls(session: Session, uses: Sequence[ToolUse], reason: str) -> None:
    """Answer all calls of a turn with an error without running any."""
    results: dict[str, ToolResult] = {}
    for use in uses:
        _finish(session, use, ToolResult(reason, is_error=True), 0.0, results)
    _emit_results(session, uses, results)


async def run_early(session: Session, judged: gate.Judged, ctx: ToolContext) -> ToolResult:
    """Run a call while its answer still streams; `ctx` has where its paths led when it was judged."""
    results: dict[str, ToolResult] = {}
    await _run_one(session, judged, _doing(session, judged, 0), results, ctx, early=True)
    return results[judged.call.use.id]


def prepared(session: Session, use: ToolUse) -> Call:
    """A call made runnable, or with what is wrong with it."""
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
    session: Session,
    batch: Sequence[Call],
    number: int,
    results: dict[str, ToolResult],
    changing: list[str],
    begun: Mapping[str, Begun],
) -> None:
    """Run what is allowed of a batch; the calls among that which may change something are added to `changing`."""
    fresh = [call for call in batch if call.use.id not in begun]
    if any(call.refused is None for call in fresh):
        await session.sandbox.start()  # begun long ago: this waits for it
    running: dict[str, gate.Judged] = {}
    for judged in await gate.judge(session, fresh):
        call = judged.call
        if call.refused is not None:
            _finish(session, call.use, call.refused, 0.0, results)
        elif judged.decision.verdict is Verdict.ALLOW:
            running[call.use.id] = judged
        else:
            refused = call_hooks.with_notes(gate.refusal(judged.decision), judged.notes)
            _finish(session, call.use, refused, 0.0, results)
    doings = {call_id: _doing(session, judged, number) for call_id, judged in running.items()}

    async def run_one(call: Call) -> None:
        call_id = call.use.id
        if call_id not in begun:
            async with lane.of(doings[call_id]):
                await _run_one(session, running[call_id], doings[call_id], results, session.ctx)
            return
        one = begun[call_id]
        await one.ended.wait()
        if one.fault is not None:
            raise one.fault
        if (result := one.take(session.ctx)) is not None:
            results[call_id] = result

    changing += [doing.call_id for doing in doings.values() if doing.changes]
    ids = [call.use.id for call in batch if call.use.id in begun or call.use.id in running]
    # Once more: what a hook rewrote may no longer run beside others.
    for together in partition([running[one].call if one in running else begun[one].call for one in ids]):
        own = [doings[call.use.id] for call in together if call.use.id in doings]
        lane = _Lane(session, [doing for doing in own if doing.changes])
        await session.ready_for([doing for doing in own if not doing.changes])
        await run_batch(together, run_one)


async def _run_one(
    session: Session,
    judged: gate.Judged,
    doing: Doing,
    results: dict[str, ToolResult],
    ctx: ToolContext,
    *,
    early: bool = False,
) -> None:
    use = judged.call.use
    masked = session.secrecy.redactor.holds(use.input)
    session.emit(
        ToolStarted(
            agent_id=session.agent_id,
            call_id=use.id,
            tool=use.name,
            summary=doing.summary,
            input=use.input,
            batch=doing.batch,
            unmasked_sha256=digest(use.name, use.input) if masked else None,
            early=early,
        )
    )
    started = time.monotonic()
    session.effects.begin(doing)
    result = None
    try:
        with session.withdrawn.running(use.id), metered(doing.meter), as_call(use.id):
            result = await _run_tool(session, judged, ctx)
    finally:
        session.effects.end(doing, result)
    if result is None:
        result = history.interrupted()
    if doing.refusals:
        note = prompt("engine/egress_refused").format(refusals="; ".join(doing.refusals))
        result = call_hooks.with_notes(result, (note,))
    await _conclude(session, judged, result, time.monotonic() - started, results)


class _Lane:
    """The write lane, for the calls of one batch that may change something of the workspace: those of all agents run
    one after the other, these run together. The others of the batch go without it, for one may wait for another agent's
    writing."""

    def __init__(self, session: Session, writing: Sequence[Doing]) -> None:
        self._session = session
        self._writing = writing
        self._entry = anyio.Lock()
        self._inside = 0

    @asynccontextmanager
    async def of(self, doing: Doing) -> AsyncIterator[None]:
        """Run a call in here."""
        if not doing.changes:
            yield
            return
        async with self._entry:
            if not self._inside:
                await self._enter()
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._session.rights.lane.release()

    async def _enter(self) -> None:
        await self._session.rights.lane.acquire()
        try:
            await self._session.ready_for(self._writing)
        except BaseException:
            self._session.rights.lane.release()
            raise


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
        runs_programs=judged.subject.command is not None or (tool.source != "builtin" and not tool.apart),
        apart=tool.apart,
        sends_out=judged.subject.sends_out,
    )


async def _run_tool(session: Session, judged: gate.Judged, ctx: ToolContext) -> ToolResult:
    """The one place where a tool runs: with exactly what the gate allowed, or not at all."""
    call = judged.call
    assert call.tool is not None
    if binding(call) != judged.bound:
        return ToolResult("The call was changed after it was allowed, so it was not run.", is_error=True)
    answered = session.proof.answer(session, call) if session.proof is not None else None
    if answered is not None:
        return answered
    try:
        with anyio.fail_after(call.tool.timeout_s):
            result = await _within_disk(session, partial(call.tool.run, call.input, ctx))
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
