"""The head of an answer: its first Read, Grep and Glob calls run while the rest of it still streams.

A call begins when its block is complete, everything before it is text, thinking or such a call, and the gate allows it
without a question and without a hook. Nothing of it counts before the answer is whole: the call's result is used for
exactly the same block of an answer that ends for its calls; whatever else becomes of the answer, the call is recorded
as discarded. Only what changes nothing runs early, so nothing has to be taken back.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import anyio

from sandbox_agent.engine import calls, gate
from sandbox_agent.engine.answers import call_ids, fault_of
from sandbox_agent.engine.scheduler import PARALLEL_CALLS, Call, holds
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import CallDiscarded
from sandbox_agent.models.base import Answer, BlockDone
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import JsonObject, ToolResult, ToolUse, nests_too_deep

EARLY_TOOLS = frozenset({"Read", "Grep", "Glob"})
_PASSED_OVER = frozenset({"text", "thinking", "redacted_thinking"})


@dataclass(slots=True, eq=False)
class Begun:
    """One call under way. `block` is number `index` of the answer, as it was when the call began. `known` are the files
    that the model knew then; what this call reads is known only once the model gets it.

    `ended` is set when `result` or `fault` is there, or neither: it was cancelled.
    """

    index: int
    block: JsonObject
    call: Call
    ctx: ToolContext
    known: Mapping[str, str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    started: bool = False
    result: ToolResult | None = None
    fault: Exception | None = None

    def take(self, ctx: ToolContext) -> ToolResult | None:
        """Its result, for the agent of `ctx`, which knows from then on what it has read; None where it has none."""
        if self.result is not None:
            ctx.known_files |= {
                path: sha256 for path, sha256 in self.ctx.known_files.items() if self.known.get(path) != sha256
            }
        return self.result


class Head:
    """The calls of one turn that run early. An async context around the request and all that follows from it: what is
    not done on the way out is cancelled."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._slots = anyio.Semaphore(PARALLEL_CALLS)
        self._kept: Sequence[Begun] = ()
        self._reset()

    def _reset(self) -> None:
        self._begun: list[Begun] = []
        self._next = 0
        self._closed = False
        self._ids: set[str] | None = None
        self._waiting: list[tuple[BlockDone, Call]] = []
        self._arrived = anyio.Event()
        self._judging: anyio.CancelScope | None = None
        self._judged = anyio.Event()

    async def __aenter__(self) -> Head:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._kept:
            one.scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._close()
            reason = f"the answer failed: {exc}" if isinstance(exc, SandboxAgentError) else "the answer was interrupted"
            await self._discard(self._begun, reason)
            for one in self._kept:
                await one.ended.wait()

    def feed(self, done: BlockDone) -> None:
        """A block is complete. Never waits."""
        if self._closed or done.index != self._next:
            self._closed = True
            return
        self._next += 1
        if done.block.get("type") in _PASSED_OVER:
            return
        call = self._call_of(done)
        if call is None:
            self._closed = True
            return
        self._waiting.append((replace(done, block=copy.deepcopy(done.block)), call))
        self._arrived.set()
        if self._judging is None:
            self._judging = anyio.CancelScope()
            self._session.tasks.start_soon(self._judge, self._judging)

    async def void(self, reason: str) -> None:
        """The answer so far counts for nothing, and another one begins."""
        with anyio.CancelScope(shield=True):
            await self._close()
            await self._discard(self._begun, reason)
        self._reset()

    async def settle(self, answer: Answer) -> Mapping[str, Begun]:
        """The answer is whole: its calls that have begun, by id. Whatever else has begun is discarded."""
        with anyio.CancelScope(shield=True):
            await self._close()
            good = answer.stop_reason == "tool_use"
            self._kept = [one for one in self._begun if good and _is_in(one, answer)]
            others = [one for one in self._begun if one not in self._kept]
            self._begun = []
            ended = f"the answer ended with {answer.stop_reason}"
            await self._discard(others, "the answer has another call in its place" if good else ended)
        return {one.call.use.id: one for one in self._kept}

    def _call_of(self, done: BlockDone) -> Call | None:
        """The call of a block, if it is one that may run early."""
        block, session = done.block, self._session
        if block.get("type") != "tool_use" or block.get("name") not in EARLY_TOOLS or done.malformed is not None:
            return None
        if self._ids is None:
            self._ids = call_ids(session.messages)
        if nests_too_deep(block) or fault_of(block, self._ids) is not None:
            return None
        self._ids.add(block["id"])
        use = ToolUse(block["id"], block["name"], copy.deepcopy(block.get("input") or {}))
        call = calls.prepared(session, use)
        if call.tool is None or call.refused is not None or call.tool.source != "builtin":
            return None
        return call if call.parallel_safe and holds(call.tool.read_only, call.input) else None

    async def _judge(self, scope: anyio.CancelScope) -> None:
        """Judge the calls as they come, those that have come together in one go, until one may not begin."""
        try:
            with scope:
                await self._session.sandbox.start()
                while not self._closed or self._waiting:
                    await self._arrived.wait()
                    self._arrived = anyio.Event()
                    waiting, self._waiting = self._waiting, []
                    if not await self._begin(waiting):
                        break
        except SandboxAgentError:
            pass  # a call that does not begin here runs in its place in the turn, and meets the same fault there
        finally:
            self._closed = True
            self._judged.set()

    async def _begin(self, waiting: Sequence[tuple[BlockDone, Call]]) -> bool:
        """Begin the first of these calls, up to one that may not; whether all were begun."""
        allowed = await gate.judge_unasked(self._session, [call for _, call in waiting])
        for (done, call), (judged, ctx) in zip(waiting, allowed, strict=False):
            known = dict(ctx.known_files)
            begun = Begun(done.index, done.block, call, replace(ctx, known_files=dict(known)), known)
            self._begun.append(begun)
            self._session.tasks.start_soon(self._run, begun, judged)
        return len(allowed) == len(waiting)

    async def _run(self, begun: Begun, judged: gate.Judged) -> None:
        try:
            with begun.scope:
                async with self._slots:
                    begun.started = True
                    begun.result = await calls.run_early(self._session, judged, begun.ctx)
        except Exception as exc:  # noqa: BLE001 - raised where the call has its place in the turn
            begun.fault = exc
        finally:
            begun.ended.set()

    async def _close(self) -> None:
        """Nothing begins any more."""
        self._closed = True
        if self._judging is not None:
            self._judging.cancel()
            await self._judged.wait()

    async def _discard(self, unwanted: Sequence[Begun], reason: str) -> None:
        """End these calls, and say so of each that ran."""
        for one in unwanted:
            one.scope.cancel()
        for one in unwanted:
            await one.ended.wait()
            # What was to be told with its result has not been told.
            self._session.ctx.restarts_told = one.ctx.restarts_told
            if one.started:
                use = one.call.use
                event = CallDiscarded(agent_id=self._session.agent_id, call_id=use.id, tool=use.name, reason=reason)
                self._session.emit(event)


def _is_in(begun: Begun, answer: Answer) -> bool:
    same = begun.index < len(answer.content) and answer.content[begun.index] == begun.block
    return same and begun.call.use.id not in answer.malformed
