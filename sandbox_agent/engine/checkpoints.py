"""The checkpoints of a session: taken beside the next model request when calls changed something, and gone back to.

Whatever may write waits until a checkpoint is done; what only reads does not. A checkpoint that cannot be taken is told
and does not end the run. What a killed run left is found by the next start: changes become a step, and a restore that
was interrupted is done again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from sandbox_agent.engine.channel import HandsLostError, NoHandsError, retried
from sandbox_agent.engine.hands import Hands
from sandbox_agent.engine.restoring import NotRestoredError, adopt, restore
from sandbox_agent.engine.taking import Limits, Taker
from sandbox_agent.engine.told import events_of, shown
from sandbox_agent.errors import SandboxError, WorkspaceError
from sandbox_agent.events import Event, Notice
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.basefiles import BaseFiles
from sandbox_agent.workspaces.record import Record
from sandbox_agent.workspaces.snapshot import Delta, diff
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Loaded, Step, Steps


@dataclass(frozen=True, slots=True)
class Reached:
    """What an undo came to: the step whose tree is back, the new step that it made, and what cannot be made again."""

    target: Step
    step: Step
    impossible: tuple[str, ...] = ()


class Checkpoints:
    """Everything about the steps of one session. `begin` first; the session's lock must be held."""

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Workspace,
        state_dir: Path,
        *,
        emit: Callable[[Event], None],
        last_seq: Callable[[], int],
        limits: Limits | None = None,
    ) -> None:
        """Nothing happens yet.

        Args:
            sandbox: where the tree is; started by the time of `begin`.
            workspace: what is mounted there.
            state_dir: the session's folder.
            emit: takes the events.
            last_seq: the number of the last entry in the session's record.
            limits: None are the usual ones.
        """
        self.steps = Steps(state_dir / CHECKPOINTS_NAME)
        self._sandbox = sandbox
        self._workspace = workspace
        self._state_dir = state_dir
        self._emit = emit
        self._last_seq = last_seq
        self._limits = limits or Limits()
        self._lock = anyio.Lock()
        self._pending = 1  # `begin` is the first to be waited for
        self._idle = anyio.Event()
        self._taker: Taker | None = None
        self._token = ""
        self._current: Step | None = None

    async def begin(self, recorded: int = -1) -> None:
        """Take the base, or go on where an earlier process was. A failure is told, and there are no checkpoints then.

        Args:
            recorded: the last step of which the session's record has the event.
        """
        try:
            async with self._lock, self._telling("there are no checkpoints in this run, and no undo"):
                await self._begin(recorded)
        finally:
            self._settle()

    def expect(self) -> None:
        """A `take` is going to follow: from now on, whatever writes waits for it."""
        if not self._pending:
            self._idle = anyio.Event()
        self._pending += 1

    async def take(self, call_ids: Sequence[str]) -> None:
        """Take the step after these calls, if anything changed. Goes with one `expect`."""
        after_seq = self._last_seq()
        try:
            async with self._lock:
                if self._taker is not None:
                    async with self._telling("what this step changed is part of the next one"):
                        await retried(lambda: self._step("calls", tuple(call_ids), after_seq))
        finally:
            self._settle()

    async def settled(self) -> None:
        """Wait until nothing is being taken."""
        if self._pending:
            await self._idle.wait()

    async def undo(self, to: int | None = None) -> Reached:
        """End every process of the tools and bring the tree back to a step; what stood before becomes a step, too.

        Args:
            to: the step; None is the one before.

        Raises:
            WorkspaceError: there is no such step, its content is not all there (nothing was touched then), or the tree
                did not become what it was; the text names the paths.
            SandboxError: the sandbox ended.
        """
        async with self._lock:
            if self._taker is None or self._current is None:
                raise WorkspaceError("this session has no checkpoints")
            await self._sandbox.end_all()
            await self._taker.hands.aclose()
            try:
                await retried(lambda: self._step("undo", (), self._last_seq()))
                wanted = self._current.position - 1 if to is None else to
                loaded = await anyio.to_thread.run_sync(self.reachable, max(wanted, self.first()) if to is None else to)
                return await self._restore(self._taker, loaded)
            except (HandsLostError, NoHandsError) as error:
                raise WorkspaceError(f"{error}; run undo again") from error

    def reachable(self, number: int) -> Loaded:
        """A step that one can go back to.

        Raises:
            WorkspaceError: there is none, or it is of a workspace that is gone.
        """
        loaded = self.steps.load(number)
        if loaded.step.workspace != self._token:
            gone = "is of a copy of the folder that was applied or discarded since"
            raise WorkspaceError(f"step {number} {gone}; this one begins with step {self.first()}")
        return loaded

    def first(self) -> int:
        """The first step that one can go back to."""
        return next(step.number for step in self.steps.headers() if step.workspace == self._token)

    async def aclose(self) -> None:
        """End the process in the container."""
        if self._taker is not None:
            await self._taker.hands.aclose()

    async def _begin(self, recorded: int) -> None:
        self._token = (await anyio.to_thread.run_sync(Record.load, self._state_dir)).token
        self.steps.sweep()
        self._limits.used_bytes = await anyio.to_thread.run_sync(self.steps.store.size_bytes)
        mine = [step for step in await anyio.to_thread.run_sync(self.steps.headers) if step.workspace == self._token]
        taken_ns = int(mine[0].time_unix_s * 1e9) if mine else time.time_ns()
        base = BaseFiles(self._workspace.host, self._state_dir, taken_ns)
        taker = Taker(Hands(self._sandbox), self.steps.store, base, uid=self._workspace.owner.uid, limits=self._limits)
        if mine:
            await self._go_on(taker, mine, recorded)
        else:
            await self._start(taker)
        self._taker = taker
        await taker.hands.ready()  # so that the next checkpoint need not wait for a Python to start

    async def _start(self, taker: Taker) -> None:
        """The first step of a workspace: the tree as it is, or for a fork as it is to be."""
        started_s = time.monotonic()
        await retried(taker.begin)
        if self._workspace.mode == "bind":
            await taker.learn_all()  # the folder itself changes: what is not kept now will be nowhere
        wanted = await anyio.to_thread.run_sync(self.steps.wanted)
        if wanted is not None:
            await self._become(taker, wanted)
        step = await self._write(taker, "base" if wanted is None else "fork", (), self._last_seq())
        await anyio.to_thread.run_sync(self.steps.fulfilled)
        self._tell(step, [], started_s)

    async def _become(self, taker: Taker, wanted: Loaded) -> None:
        adopted = adopt(wanted, taker.snapshot, self.steps.store.has)
        if adopted.theirs:
            self._warn(f"changed in your folder since, and taken as it is now: {shown(adopted.theirs)}")

        async def bring() -> None:
            await taker.look()
            await restore(taker, adopted.target, {})

        await retried(bring)

    async def _go_on(self, taker: Taker, mine: Sequence[Step], recorded: int) -> None:
        """What an earlier process left: a step without its event, an interrupted restore, changes of a killed run."""
        loaded = await anyio.to_thread.run_sync(self.steps.load, mine[-1].number)
        taker.resume(loaded.snapshot, loaded.bases)
        self._current = mine[-1]
        for step in mine:
            if step.number > recorded:
                await self._tell_late(step)
        restoring = await anyio.to_thread.run_sync(self.steps.restoring)
        if restoring is None:
            self._taker = taker
            await retried(lambda: self._step("start", (), self._last_seq()))
            return
        self._warn(f"an undo to step {restoring} was interrupted and is done again now")
        target = await anyio.to_thread.run_sync(self.reachable, restoring)
        await retried(taker.look)
        try:
            await self._restore(taker, target)
        except WorkspaceError as error:
            self._warn(str(error))

    async def _tell_late(self, step: Step) -> None:
        now = await anyio.to_thread.run_sync(self.steps.load, step.number)
        before = None if step.whole else await anyio.to_thread.run_sync(self.steps.load, step.number - 1)
        self._tell(step, diff(before.snapshot, now.snapshot) if before is not None else [], time.monotonic())

    async def _restore(self, taker: Taker, target: Loaded) -> Reached:
        """Bring a step back, from what `taker` has just seen; whatever comes of it becomes a step."""
        started_s, before, after_seq = time.monotonic(), taker.snapshot, self._last_seq()

        def begun() -> None:
            self.steps.begin_restore(target.step.number)

        async def conclude(restored: int | None) -> Step:
            step = await self._write(taker, "undo", (), after_seq, restored=restored)
            await anyio.to_thread.run_sync(self.steps.end_restore)
            self._tell(step, diff(before, taker.snapshot), started_s)
            return step

        try:
            impossible = await retried(
                lambda: restore(taker, target.snapshot, target.bases, begun=begun), between=taker.look
            )
        except NotRestoredError:
            await conclude(None)
            raise
        return Reached(target.step, await conclude(target.step.position), tuple(impossible))

    async def _step(self, origin: str, call_ids: tuple[str, ...], after_seq: int) -> None:
        """Look, and make a step of what changed."""
        assert self._taker is not None
        taker, started_s = self._taker, time.monotonic()
        deltas = await taker.look()
        if taker.skipped:
            self._warn(f"{taker.skipped} entries nested too deep or with too long a name are in no checkpoint")
        if deltas:
            self._tell(await self._write(taker, origin, call_ids, after_seq), deltas, started_s)

    async def _write(
        self, taker: Taker, origin: str, call_ids: tuple[str, ...], after_seq: int, *, restored: int | None = None
    ) -> Step:
        number = await anyio.to_thread.run_sync(self.steps.next_number)
        tree = taker.snapshot
        step = Step(
            number,
            origin,
            tree.tree_sha256,
            time.time(),
            workspace=self._token,
            after_seq=after_seq,
            call_ids=call_ids,
            restored=restored,
            bases=dict(taker.learned),
        )
        nodes = tree.nodes if step.whole else {path: tree.nodes[path] for path in taker.touched & tree.nodes.keys()}
        removed = () if step.whole else sorted(taker.touched - tree.nodes.keys())
        await anyio.to_thread.run_sync(self.steps.write, step, nodes, removed)
        taker.touched.clear()
        taker.learned.clear()
        self._current = step
        return step

    def _tell(self, step: Step, deltas: Sequence[Delta], started_s: float) -> None:
        for event in events_of(step, deltas, time.monotonic() - started_s):
            self._emit(event)

    def _warn(self, text: str) -> None:
        self._emit(Notice(level="warning", text=text))

    @asynccontextmanager
    async def _telling(self, consequence: str) -> AsyncIterator[None]:
        """A failure in here is told to the person, and ends nothing."""
        try:
            yield
        except (HandsLostError, NoHandsError, WorkspaceError, OSError) as error:
            self._warn(f"no checkpoint: {error}; {consequence}")
        except SandboxError:
            pass  # the run hears of it by itself, and says more about it

    def _settle(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._idle.set()
