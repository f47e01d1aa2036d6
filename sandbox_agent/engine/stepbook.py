"""Looks become steps: what changed is written down as one, and told.

One for each session; the checkpoints themselves are in `checkpoints`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import anyio

from sandbox_agent.engine.effects import Effects
from sandbox_agent.engine.taking import Taker
from sandbox_agent.engine.told import events_of
from sandbox_agent.events import Event, Notice
from sandbox_agent.workspaces.snapshot import Delta, Snapshot, diff
from sandbox_agent.workspaces.steps import Step, Steps

LOOK_BETWEEN_NODES = 20_000
"""In a larger workspace a look takes over 100 ms, and the call that comes next would wait for it."""

REMEMBERED_NODES = 500_000
"""Of the last steps, in memory; their nodes are mostly the same objects, so it is the lists of them that count."""


class StepBook:
    """The steps of a session as they are written. `current` is the last one, `calls` those that no step names yet.

    `token` is the workspace's, "" before it is known. `effects` hears of every look.
    """

    def __init__(self, steps: Steps, emit: Callable[[Event], None], effects: Effects) -> None:
        self.steps = steps
        self.token = ""
        self.current: Step | None = None
        self.calls: list[str] = []
        self._trees: dict[int, Snapshot] = {}
        self._emit = emit
        self._effects = effects
        self._ahead = False

    async def look(self, taker: Taker, origin: str, after_seq: int) -> None:
        """Look, and make a step of what changed."""
        started_s = time.monotonic()
        deltas = await self._see(taker)
        if self._ahead and self.current is not None:
            before = await anyio.to_thread.run_sync(self.tree, self.current)
            deltas = await anyio.to_thread.run_sync(diff, before, taker.snapshot)
        self._ahead = bool(deltas)
        if deltas:
            self.tell(await self.write(taker, origin, after_seq), deltas, started_s)
            self._ahead = False

    async def look_between(self, taker: Taker) -> None:
        """Look only to know whose doing it is; what changed becomes part of the next step. Left out in a large
        workspace: what several calls change there is told of all of them."""
        if len(taker.snapshot.nodes) <= LOOK_BETWEEN_NODES:
            self._ahead = bool(await self._see(taker)) or self._ahead

    async def _see(self, taker: Taker) -> list[Delta]:
        begun = self._effects.look_begins()
        deltas = await taker.look()
        if taker.skipped:
            self.warn(f"{taker.skipped} entries nested too deep or with too long a name are in no checkpoint")
        authors = await self._effects.looked(begun, deltas)
        self.calls += [call_id for call_id in authors if call_id not in self.calls]
        return deltas

    async def write(self, taker: Taker, origin: str, after_seq: int, *, restored: int | None = None) -> Step:
        number = await anyio.to_thread.run_sync(self.steps.next_number)
        tree = taker.snapshot
        step = Step(
            number,
            origin,
            tree.tree_sha256,
            time.time(),
            workspace=self.token,
            after_seq=after_seq,
            call_ids=tuple(self.calls),
            restored=restored,
            bases=dict(taker.learned),
        )
        # Set operations with all paths would cost as much as there are of them.
        nodes = tree.nodes if step.whole else {path: tree.nodes[path] for path in taker.touched if path in tree.nodes}
        removed = () if step.whole else sorted(path for path in taker.touched if path not in tree.nodes)
        await anyio.to_thread.run_sync(self.steps.write, step, nodes, removed)
        self._trees[number] = tree
        while sum(len(one.nodes) for one in self._trees.values()) > REMEMBERED_NODES:
            first, *others = self._trees  # the first one stays: people go back to the start
            del self._trees[others[0] if len(others) > 1 else first]
        taker.touched.clear()
        taker.learned.clear()
        self.calls.clear()
        self.current = step
        return step

    def tree(self, step: Step) -> Snapshot:
        """The tree of a step; the last few are at hand.

        Raises:
            WorkspaceError: a step's file is damaged.
        """
        return self._trees[step.number] if step.number in self._trees else self.steps.load(step.number).snapshot

    def tell(self, step: Step, deltas: Sequence[Delta], started_s: float) -> None:
        for event in events_of(step, deltas, time.monotonic() - started_s):
            self._emit(event)

    def warn(self, text: str) -> None:
        self._emit(Notice(level="warning", text=text))

    async def tell_late(self, step: Step) -> None:
        now = await anyio.to_thread.run_sync(self.steps.load, step.number)
        before = None if step.whole else await anyio.to_thread.run_sync(self.steps.load, step.number - 1)
        self.tell(step, diff(before.snapshot, now.snapshot) if before is not None else [], time.monotonic())
