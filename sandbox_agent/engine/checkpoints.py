"""The checkpoints of a session: taken beside the next model request when calls changed something, and gone back to.

Whatever may write waits until a checkpoint is done; what only reads does not. A checkpoint that cannot be taken is told
and does not end the run. What a killed run left is found by the next start: changes become a step, and a restore that
was interrupted is done again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from sandbox_agent.engine.channel import HandsLostError, NoHandsError, retried
from sandbox_agent.engine.effects import Effects
from sandbox_agent.engine.hands import Hands
from sandbox_agent.engine.restoring import NotRestoredError, Reached, adopt, restore
from sandbox_agent.engine.stepbook import StepBook
from sandbox_agent.engine.taking import Limits, Taker
from sandbox_agent.engine.told import shown
from sandbox_agent.errors import SandboxError, WorkspaceError
from sandbox_agent.events import Event
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.basefiles import BaseFiles
from sandbox_agent.workspaces.record import Record
from sandbox_agent.workspaces.snapshot import Node, diff
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Loaded, Step, Steps, step_before
from sandbox_agent.workspaces.stored import go_on


class Checkpoints:
    """Everything about the steps of one session. `begin` first; the session's lock must be held.

    `begun` is True once the base is taken; `pending` counts the checkpoints that are expected or under way.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Workspace,
        state_dir: Path,
        *,
        emit: Callable[[Event], None],
        last_seq: Callable[[], int],
        limits: Limits | None = None,
        effects: Effects | None = None,
    ) -> None:
        """Nothing happens yet.

        Args:
            sandbox: where the tree is; started by the time of `begin`.
            workspace: what is mounted there.
            state_dir: the session's folder.
            emit: takes the events.
            last_seq: the number of the last entry in the session's record.
            limits: None are the usual ones.
            effects: hears of every look; None: no calls are to be told of.
        """
        self.steps = Steps(state_dir / CHECKPOINTS_NAME)
        self._effects = effects or Effects(emit)
        self._book = StepBook(self.steps, emit, self._effects)
        self._sandbox = sandbox
        self._workspace = workspace
        self._state_dir = state_dir
        self._last_seq = last_seq
        self._limits = limits or Limits()
        self._lock = anyio.Lock()
        self.pending = 1  # `begin` is the first to be waited for
        self._idle = anyio.Event()
        self._taker: Taker | None = None
        self.begun = False
        self._seen_all = False
        self._over = False

    async def begin(self, *, after_seq: int = -1, recorded: int = -1) -> None:
        """Take the base, or go on where an earlier process was. A failure is told, and there are no checkpoints then.

        Args:
            after_seq: the last entry of the session's record that belongs to what there is now.
            recorded: the last step of which the record has the event.

        Raises:
            WorkspaceError: a fork did not get the tree that it is to begin with.
        """
        go_on(self._state_dir)
        try:
            async with self._lock, self._telling("there are no checkpoints in this run, and no undo"):
                await self._begin(after_seq, recorded)
        finally:
            self._settle()
        if self._taker is not None:  # nothing waits for this any more, but the first change of a file would
            await anyio.to_thread.run_sync(self._taker.prepare, abandon_on_cancel=True)

    def expect(self) -> int:
        """A `take` is going to follow: from now on, whatever writes waits for it. Returns what to give to that."""
        if not self.pending:
            self._idle = anyio.Event()
        self.pending += 1
        return self._last_seq()

    async def take(self, call_ids: Sequence[str], after_seq: int) -> None:
        """Take the step after these calls, if anything changed. Goes with one `expect`, which gives `after_seq`."""
        self._book.calls += [call_id for call_id in call_ids if call_id not in self._book.calls]
        try:
            async with self._lock:
                taker = self._taker
                if taker is None:
                    self._effects.blind()
                else:
                    self._seen_all = False
                    async with self._telling("what this step changed is part of the next one"):
                        await retried(lambda: self._book.look(taker, "calls", after_seq))
                        self._seen_all = True
        finally:
            self._settle()

    async def look(self) -> None:
        """Look in the middle of a turn, without making a step: programs of one call have ended, others come."""
        async with self._lock, self._telling("whose changes are whose is not known for this turn"):
            taker = self._taker
            if taker is not None:
                await retried(lambda: self._book.look_between(taker))

    async def read_base(self) -> Mapping[str, str]:
        """Keep every content of the base, before anything was changed: its paths to the names of what is in them.

        Raises:
            WorkspaceError: the process in the container that reads was lost.
        """
        async with self._lock:
            taker = self._taker
            if taker is None:
                return {}
            try:
                await retried(taker.read_base)
            except (HandsLostError, NoHandsError) as error:
                raise WorkspaceError(f"the folder could not be read for the recording: {error}") from error
            return dict(taker.bases)

    async def settled(self) -> None:
        """Wait until nothing is being taken."""
        if self.pending:
            await self._idle.wait()

    async def finish(self) -> int | None:
        """The session's work is over: what it did since the last step becomes one.

        Before `begin` has ended nothing can have been changed, and there is nothing to wait for.

        Returns:
            The step that has all it did; None if there is no such.
        """
        self._over = True
        return await self.now()

    async def now(self) -> int | None:
        """Look, and make a step of what is there and in none yet; returns the last step, see `finish`."""
        if self._taker is None:
            return None
        await self.settled()
        await self.take((), self.expect())
        last = self._book.current
        return last.number if last is not None and self._seen_all else None

    async def undo(self, to: int | None = None, *, rewind: bool = False) -> Reached:
        """End every process of the tools and bring the tree back to a step; what stood before becomes a step, too.

        Args:
            to: the step; None is the one before.
            rewind: whether the conversation goes back, too (which is for the caller to record).

        Raises:
            WorkspaceError: there is no such step, none lies before this one, its content is not all there (nothing was
                touched then), or the tree did not become what it was; the text names the paths.
            SandboxError: the sandbox ended.
        """
        async with self._lock:
            taker = self._taker
            if taker is None or self._book.current is None:
                raise WorkspaceError("this session has no checkpoints")
            await self._sandbox.end_all(spare=taker.hands.stream)
            try:
                await retried(lambda: self._book.look(taker, "undo", self._last_seq()))
                wanted = step_before(self._book.current, self.first()) if to is None else to
                step = await anyio.to_thread.run_sync(self.reachable, wanted)
                return await self._restore(taker, step, rewind=rewind)
            except (HandsLostError, NoHandsError) as error:
                raise WorkspaceError(f"{error}; run undo again") from error

    def reachable(self, number: int) -> Step:
        """A step that one can go back to.

        Raises:
            WorkspaceError: there is none, or it is of a workspace that is gone.
        """
        step = self.steps.header(number)
        if step.workspace != self._book.token:
            gone = "is of a copy of the folder that was applied or discarded since"
            raise WorkspaceError(f"step {number} {gone}; this one begins with step {self.first()}")
        return step

    @property
    def current(self) -> Step | None:
        """The last step; None before `begin` has ended."""
        return self._book.current

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All that was in the workspace at the last look, by relative path; the same object until something changes."""
        return self._taker.snapshot.nodes if self._taker is not None else {}

    @property
    def changed(self) -> bool:
        """Whether there is more than the base."""
        return self._book.current is not None and self._book.current.number != self.first()

    def first(self) -> int:
        """The first step that one can go back to."""
        return next(step.number for step in self.steps.headers() if step.workspace == self._book.token)

    async def aclose(self) -> None:
        """End the process in the container."""
        if self._taker is not None:
            await self._taker.hands.aclose()

    async def _begin(self, after_seq: int, recorded: int) -> None:
        self._book.token = (await anyio.to_thread.run_sync(Record.load, self._state_dir)).token
        self.steps.sweep()
        self._limits.used_bytes = await anyio.to_thread.run_sync(self.steps.store.size_bytes)
        mine = [
            step for step in await anyio.to_thread.run_sync(self.steps.headers) if step.workspace == self._book.token
        ]
        taken_ns = int(mine[0].time_unix_s * 1e9) if mine else time.time_ns()
        base = BaseFiles(self._workspace.host, self._state_dir, taken_ns)
        owner = self._workspace.owner
        taker = Taker(Hands(self._sandbox, owner), self.steps.store, base, owner=owner, limits=self._limits)
        if mine:
            await self._go_on(taker, mine, after_seq, recorded)
        else:
            await self._start(taker, after_seq)
        self._taker, self.begun = taker, True
        await taker.hands.ready()  # so that the next checkpoint need not wait for a Python to start

    async def _start(self, taker: Taker, after_seq: int) -> None:
        """The first step of a workspace: the tree as it is, or for a fork as it is to be."""
        started_s = time.monotonic()
        await retried(taker.begin)
        if self._workspace.mode == "bind":
            await taker.learn_all()  # the folder itself changes: what is not kept now will be nowhere
        wanted = await anyio.to_thread.run_sync(self.steps.wanted)
        if wanted is not None:
            await self._become(taker, wanted)
        step = await self._book.write(taker, "base" if wanted is None else "fork", after_seq)
        await anyio.to_thread.run_sync(self.steps.fulfilled)
        self._book.tell(step, [], started_s)

    async def _become(self, taker: Taker, wanted: Loaded) -> None:
        adopted = adopt(wanted, taker.snapshot, self.steps.store.has)
        if adopted.theirs:
            self._book.warn(f"changed in your folder since, and taken as it is now: {shown(adopted.theirs)}")
        await retried(lambda: restore(taker, adopted.target, {}), between=taker.look)

    async def _go_on(self, taker: Taker, mine: Sequence[Step], after_seq: int, recorded: int) -> None:
        """What an earlier process left: a step without its event, an interrupted restore, changes of a killed run."""
        loaded = await anyio.to_thread.run_sync(self.steps.load, mine[-1].number)
        taker.resume(loaded.snapshot, loaded.bases)
        self._book.current = mine[-1]
        for step in mine:
            if step.number > recorded:
                await self._book.tell_late(step)
        restoring = await anyio.to_thread.run_sync(self.steps.restoring)
        if restoring is None:
            await retried(lambda: self._book.look(taker, "start", after_seq))
            return
        self._book.warn(f"an undo to step {restoring} was interrupted and is done again now")
        target = await anyio.to_thread.run_sync(self.reachable, restoring)
        await retried(taker.look)
        try:
            await self._restore(taker, target)
        except WorkspaceError as error:
            self._book.warn(str(error))

    async def _restore(self, taker: Taker, target: Step, *, rewind: bool = False) -> Reached:
        """Bring a step back, from what `taker` has just seen; whatever comes of it becomes a step."""
        started_s, before = time.monotonic(), taker.snapshot
        after_seq = target.after_seq if rewind else self._last_seq()

        def begun() -> None:
            self.steps.begin_restore(target.number)

        async def conclude(restored: int | None) -> Step:
            step = await self._book.write(taker, "undo", after_seq, restored=restored)
            await anyio.to_thread.run_sync(self.steps.end_restore)
            self._book.tell(step, diff(before, taker.snapshot), started_s)
            return step

        tree = await anyio.to_thread.run_sync(self._book.tree, target)
        try:
            restored = await retried(lambda: restore(taker, tree, taker.bases, begun=begun), between=taker.look)
        except NotRestoredError:
            await conclude(None)
            raise
        step = await conclude(None if restored.theirs else target.position)
        return Reached(target, step, len(diff(before, taker.snapshot)), restored)

    @asynccontextmanager
    async def _telling(self, consequence: str) -> AsyncIterator[None]:
        """A failure in here is told to the person, and ends nothing."""
        try:
            yield
        except (HandsLostError, NoHandsError, WorkspaceError, OSError) as error:
            if self.steps.is_wanted:
                raise WorkspaceError(f"the fork did not get the tree that it is to begin with: {error}") from error
            if self._taker is not None or not self._over:  # else the run ended before there was anything to take
                self._book.warn(f"no checkpoint: {error}; {consequence}")
        except SandboxError:
            pass  # the run hears of it by itself, and says more about it

    def _settle(self) -> None:
        self.pending -= 1
        if not self.pending:
            self._idle.set()
