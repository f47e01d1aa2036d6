"""What signals do to a run.

The first Ctrl-C interrupts the agent (the review follows), the second ends everything. SIGTERM and SIGHUP interrupt
and, if the run has not come to its end soon, cancel: in both cases the container is removed and the record closed by
the blocks that opened them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup, TaskStatus

SOFT_END_S = 2.0
"""From SIGTERM to the hard cancel; with the removal of the container it stays under 5 s."""


class Stop:
    """Watches for signals. Everything that must end by them runs in `open_scope()`; `cause` is the deciding signal.

    `interrupt` is set while an agent runs that can be interrupted softly; without it every signal is final.
    """

    def __init__(self) -> None:
        self.cause: signal.Signals | None = None
        self.interrupt: Callable[[], None] | None = None
        self._interrupts = 0
        self._scope: anyio.CancelScope | None = None

    def open_scope(self) -> anyio.CancelScope:
        """A new scope that `end` and signals cancel; needs the event loop, as no earlier part of a job does."""
        self._scope = anyio.CancelScope()
        return self._scope

    def end(self) -> None:
        """Cancel what runs in the scope."""
        if self._scope is not None:
            self._scope.cancel()

    async def watch(self, group: TaskGroup, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Handle signals until cancelled; `task_status` reports when they are caught."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            task_status.started()
            async for number in received:
                if number == signal.SIGINT:
                    self._ctrl_c()
                elif self.cause is None:
                    self.cause = number
                    group.start_soon(self._terminate)

    def _ctrl_c(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1 and self.interrupt is not None:
            self.interrupt()
        else:
            self.cause = self.cause or signal.SIGINT
            self.end()

    async def _terminate(self) -> None:
        if self.interrupt is not None:
            self.interrupt()
            await anyio.sleep(SOFT_END_S)
        self.end()
