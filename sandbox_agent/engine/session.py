"""A session is data: what a run is made of, and where its events go. Behaviour lives in the rooms around it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sandbox_agent.engine import drifting, history
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.disk import DiskLimit
from sandbox_agent.engine.effects import Doing, Effects
from sandbox_agent.engine.hooks import Hooks
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.queue import MessageQueue
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import ChangesApplied, Event, Notice, ReviewReady, UserMessage
from sandbox_agent.models.base import Model
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.tape import TapeWriter
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.pool import ToolPool
from sandbox_agent.types import Decision, JsonObject, Limits, Mode, Subject
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Workspace
from sandbox_agent.workspaces.hunks import Span
from sandbox_agent.workspaces.stored import end_at


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the person: exactly what would run, one question for all parts of a command.

    `suggested_rules` are the narrowest rules that together would allow it, one for each part that nothing covers; none
    where no rules can.
    """

    call_id: str
    tool: str
    subject: Subject
    input: JsonObject
    decision: Decision
    suggested_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The answer. `scope` is "once", "session" or "always"; `reason` goes to the model when refused; `by` says who
    answered, for the record: "person", "hook", or "callback" of the embedding program."""

    allow: bool
    scope: str = "once"
    reason: str | None = None
    by: str = field(default="callback", compare=False)


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]]


@dataclass(slots=True, kw_only=True)
class Session:
    """All that one agent's run needs. `allowed_inputs` holds the digests a person allowed for this session.

    `drift_told` has the state of the person's files (see `Drift`) that was last told. `fault` is what ended the
    sandbox while nobody waited for it. `unapplied` names the changes that are only in the
    session's copy of the folder; None before anyone looked. `before_end` is what is done before the sandbox closes.
    """

    id: str
    model: Model
    sandbox: Sandbox
    workspace: Workspace
    pool: ToolPool
    policy: Policy
    mode: Mode
    limits: Limits
    ctx: ToolContext
    system: tuple[JsonObject, ...]
    tape: TapeWriter
    lock: SessionLock
    tasks: TaskGroup
    checkpoints: Checkpoints | None = None
    effects: Effects = field(init=False)
    approver: Approver | None = None
    hooks: Hooks | None = None
    before_end: Callable[[], Awaitable[None]] | None = None
    save_rule: Callable[[str], None] | None = None
    agent_id: str = "main"
    disk: DiskLimit | None = None
    secrecy: Secrecy = field(default_factory=Secrecy)
    queue: MessageQueue = field(default_factory=MessageQueue)
    messages: list[JsonObject] = field(default_factory=list)
    allowed_inputs: set[str] = field(default_factory=set)
    denials: list[JsonObject] = field(default_factory=list)
    scope: anyio.CancelScope | None = None
    interrupted: bool = False
    fault: SandboxAgentError | None = None
    drift_told: dict[str, str] = field(default_factory=dict)
    unapplied: set[str] | None = None
    _listeners: list[MemoryObjectSendStream[Event]] = field(default_factory=list)
    _unheard: list[Event] = field(default_factory=list)
    _notes_told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.effects = Effects(self.emit, self.workspace)

    def emit(self, event: Event) -> None:
        """Record an event, extend the conversation by it, and pass it to whoever listens. Never waits.

        Secrets are taken out first, so nobody gets to see one: see `secrecy`.
        """
        for clean in self.secrecy.pass_on(event):
            self._emit(clean)

    def _emit(self, event: Event) -> None:
        if event.recorded:
            self.tape.append(event)
            history.extend(self.messages, event)
        if not self._listeners:
            self._unheard.append(event)
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(event)
            except anyio.BrokenResourceError:  # it went away; the record is what counts
                listener.close()
                self._listeners.remove(listener)

    def listen(self) -> MemoryObjectReceiveStream[Event]:
        """All events nobody has heard yet (the session's start among them), then all from now on.

        The buffer is unbounded: the loop never waits for a front end.
        """
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        for event in self._unheard:
            send.send_nowait(event)
        self._unheard.clear()
        self._listeners.append(send)
        return receive

    def hang_up(self) -> None:
        """End the streams of all listeners."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def say(self, text: str) -> None:
        """Put a user message straight into the conversation."""
        self.emit(UserMessage(agent_id=self.agent_id, content=({"type": "text", "text": text},)))

    def pass_on_notes(self) -> None:
        """Tell what the workspace has to say and has not said yet: what is masked, skipped, or changed in `.git`."""
        for line in (*self.workspace.notes, *self.secrecy.notes):
            if line not in self._notes_told:
                self._notes_told.add(line)
                self.emit(Notice(level="info", text=line))

    def sync_soon(self) -> None:
        """Force the record to disk, beside what comes next rather than before it."""
        self.tasks.start_soon(anyio.to_thread.run_sync, self.tape.sync)

    async def ready_for(self, doings: Collection[Doing]) -> None:
        """Wait until these calls may run: the last checkpoint has all that it is to have before a call that may change
        something comes, and what programs changed is known before others could have."""
        if self.checkpoints is None:
            return
        changes = any(not doing.read_only for doing in doings)
        programs = [doing for doing in doings if doing.runs_programs]
        only_read = all(doing.read_only for doing in programs)
        if changes or (programs and (not self.checkpoints.begun or self.effects.unseen(writers=only_read))):
            await self.checkpoints.settled()
        if programs and self.effects.unseen(writers=only_read):
            await self.checkpoints.look()

    def checkpoint_soon(self, call_ids: Sequence[str]) -> None:
        """Take a checkpoint beside the next model request: after calls that may have changed something, and after
        programs that declared that they would not."""
        if self.checkpoints is None:
            self.effects.blind()
        elif call_ids or (self.effects.unseen() and self.checkpoints.pending < 2):
            self.tasks.start_soon(self.checkpoints.take, tuple(call_ids), self.checkpoints.expect())

    async def last_look(self) -> None:
        """See what the last calls did, where nobody asked for the changes, which includes that."""
        if self.checkpoints is not None and self.fault is None and self.unapplied is None and self.effects.pending:
            await self.checkpoints.finish()

    async def changes(self) -> tuple[Change, ...]:
        """What the run changed. The sandbox is closed first, so that nothing moves under the review.

        Raises:
            SandboxError: it could not be started; nobody had waited for it so far.
        """
        last = None
        if self.fault is None:
            # A run that called no tool may end before the folder is ready, and there is nothing to compare with then.
            await self.sandbox.start()
        if self.before_end is not None:
            await self.before_end()
        if self.checkpoints is not None and self.fault is None:
            last = await self.checkpoints.finish()
        await self.sandbox.close()
        if self.checkpoints is not None and last is not None:
            await anyio.to_thread.run_sync(end_at, self.checkpoints.steps.folder.parent, last)
        await self.tell_drift()
        found = await anyio.to_thread.run_sync(self.workspace.changes)
        self.pass_on_notes()
        self.unapplied = {change.path for change in found}
        self.emit(
            ReviewReady(changes=tuple(change.as_json() for change in found), commits=tuple(self.workspace.commits))
        )
        return found

    async def tell_drift(self) -> None:
        """Look what others changed in the person's folder, and tell what is new of it.

        Raises:
            WorkspaceError: the folder cannot be looked at, or the workspace was never ready.
        """
        fresh = drifting.news(await anyio.to_thread.run_sync(self.workspace.drift), self.drift_told)
        if fresh:
            event = drifting.event_of(fresh)
            self.drift_told |= drifting.told_by([event])
            self.emit(event)

    async def apply(
        self, paths: Collection[str] | None, hunks: Mapping[str, Collection[Span]] | None = None
    ) -> ApplyOutcome:
        """Bring the named changes (None: all), and the named hunks of others, to the person's folder.

        What could not go stays kept for `apply ID`.
        """
        outcome = await anyio.to_thread.run_sync(self.workspace.apply, paths, hunks)
        self.unapplied = set(outcome.unapplied) | set(outcome.conflicts)
        self.emit(
            ChangesApplied(
                applied=tuple(outcome.applied),
                unapplied=tuple(outcome.unapplied),
                conflicts=dict(outcome.conflicts),
                partial=tuple(outcome.partial),
                withheld=dict(outcome.withheld),
            )
        )
        return outcome

    @property
    def copy_is_wanted(self) -> bool:
        """Whether the session's copy holds something that is nowhere else: changes, or commits, or nobody looked."""
        if self.unapplied is None or self.unapplied or self.workspace.commits:
            return True
        # In mode bind the folder itself was changed, and the checkpoints are the only way back.
        return self.workspace.mode == "bind" and self.checkpoints is not None and self.checkpoints.changed

    def interrupt(self) -> None:
        """End the running turn: open calls get an "interrupted" result, the history stays valid."""
        self.interrupted = True
        if self.scope is not None:
            self.scope.cancel()

    def fail(self, fault: SandboxAgentError) -> None:
        """End the running turn because the sandbox is gone, even while the model is still answering."""
        self.fault = fault
        if self.scope is not None:
            self.scope.cancel()
