"""A session is data: what a run is made of, and where its events go. Behaviour lives in the rooms around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from sandbox_agent.engine import drifting, told
from sandbox_agent.engine.approval import Approver
from sandbox_agent.engine.budget import Budget
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.disk import DiskLimit
from sandbox_agent.engine.effects import Doing, Effects
from sandbox_agent.engine.hooks import Hooks
from sandbox_agent.engine.jobs import Jobs
from sandbox_agent.engine.journal import Journal
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.proof import Proof
from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.engine.window import Window
from sandbox_agent.engine.withdrawn import Withdrawn
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import ChangesApplied, Event, Notice, ReviewReady, UserMessage
from sandbox_agent.models.base import Model
from sandbox_agent.models.prices import Prices
from sandbox_agent.policy.policy import Policy
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.tape import TapeWriter
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.pool import ToolPool
from sandbox_agent.types import JsonObject, Limits, Mode
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Workspace
from sandbox_agent.workspaces.hunks import Span
from sandbox_agent.workspaces.stored import end_at


class McpServers(Protocol):
    """The MCP servers of a session; see `engine.servers`."""

    async def ready(self) -> None:
        """Wait until each is there, or has failed; then their tools are among the session's."""
        ...

    async def standing(self) -> Sequence[Any]:
        """How it is with each."""
        ...

    async def prompts(self) -> tuple[Sequence[Any], Sequence[str]]:
        """What they have ready for a person to say, and why some do not tell."""
        ...

    async def prompt(self, prompt: Any, arguments: Mapping[str, str]) -> str:
        """One of `prompts`, filled in."""
        ...

    async def close(self) -> None:
        """End them all. Shielded, and bounded."""
        ...


class FormedAnswer(Protocol):
    """The answer of a task in the form of a JSON Schema; see `engine.structured`."""

    @property
    def value(self) -> JsonObject | None:
        """It; None so far."""
        ...

    @property
    def missing(self) -> str:
        """What to say of a task that ended without."""
        ...

    def begin(self) -> None:
        """A new task begins, with no answer yet."""
        ...


BACKGROUND_WAIT_S = 600.0


@dataclass(slots=True)
class Rights:
    """What all agents of a session may do, and what the person said to it meanwhile.

    `allowed_inputs` holds the digests of calls that the person allowed for this session. `asking` is held while they
    are asked: one question at a time. `lane` is the write lane: held, first come first served, by every call of every
    agent that may change something, while it runs.
    """

    policy: Policy
    allowed_inputs: set[str] = field(default_factory=set)
    asking: anyio.Lock = field(default_factory=anyio.Lock)
    lane: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(1, max_value=1))


@dataclass(slots=True, kw_only=True)
class Session:
    """All that one agent's run needs. Agents of one session share what is not their own: see `engine.subagents`.

    `agent_type` is the name of a sub-agent's type.
    `other_model` is what its requests ask for in place of the model's own name. `parent` is the agent that started
    this one, None for the first. `drift_told` has the state of the person's files (see `Drift`) that was last told.
    `looking` is held while the person's folder is compared, or changed by us.
    `fault` is what ended the sandbox while nobody waited for it. `unapplied` names the changes that are only in the
    session's copy of the folder; None before anyone looked. `before_task` is what the first task waits for,
    `before_end` what is done before the sandbox closes.
    `fallback` is the model to ask where the own one cannot answer, `signers` has the model of each signature in the
    thinking so far.
    `mode` is the agent's own permission mode; one that `follows` has none of its own and is in that of its parent.
    `proof` is set where the run is recorded or replayed.
    `background_wait_s` is how long an agent that would stop waits for what it has running in the background, which is
    ended then; None lets it run on. `scope` is of the run that is under way, `turn_scope` of its present turn.
    """

    id: str
    model: Model
    sandbox: Sandbox
    workspace: Workspace
    pool: ToolPool
    rights: Rights
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
    before_task: Callable[[], Awaitable[None]] | None = None
    servers: McpServers | None = None
    before_end: Callable[[], Awaitable[None]] | None = None
    save_rule: Callable[[str], None] | None = None
    agent_id: str = "main"
    agent_type: str | None = None
    other_model: str | None = None
    fallback: str | None = None
    signers: dict[str, str] = field(default_factory=dict)
    parent: Session | None = None
    follows: bool = False
    disk: DiskLimit | None = None
    answer: FormedAnswer | None = None
    secrecy: Secrecy = field(default_factory=Secrecy)
    journal: Journal = field(init=False)
    jobs: Jobs = field(init=False)
    budget: Budget = field(init=False)
    window: Window = field(init=False)
    background_wait_s: float | None = BACKGROUND_WAIT_S
    queue: MessageQueue = field(default_factory=MessageQueue)
    denials: list[JsonObject] = field(default_factory=list)
    scope: anyio.CancelScope | None = None
    turn_scope: anyio.CancelScope | None = None
    interrupted: bool = False
    fault: SandboxAgentError | None = None
    failed: anyio.Event = field(default_factory=anyio.Event)
    withdrawn: Withdrawn = field(default_factory=Withdrawn)
    drift_told: dict[str, str] = field(default_factory=dict)
    looking: anyio.Lock = field(default_factory=anyio.Lock)
    unapplied: set[str] | None = None
    proof: Proof | None = None
    _notes_told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.journal = self.parent.journal if self.parent is not None else Journal(self.tape, self.secrecy)
        self.effects = self.parent.effects if self.parent is not None else Effects(self.emit, self.workspace)
        self.jobs = self.parent.jobs if self.parent is not None else Jobs(self.emit, self.tasks)
        self.budget = self.parent.budget if self.parent is not None else Budget(self.limits, Prices(self.policy.prices))
        self.window = Window(self.limits.context_tokens)
        self.queue.when_now = self.end_turn

    @property
    def policy(self) -> Policy:
        """The policy as it is now, with what the person allowed for this session."""
        return self.rights.policy

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation so far, as the Messages API takes it."""
        return self.journal.conversation(self.agent_id)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The permission modes that a call must pass: this agent's own, and those of every agent above it. The first is
        the one that it is in."""
        above = self.parent.modes if self.parent is not None else ()
        return above if self.follows else tuple(dict.fromkeys((self.mode, *above)))

    def emit(self, event: Event) -> None:
        """Tell what happens; see `Journal.emit`. Never waits."""
        if self.parent is not None and event.agent_id == self.agent_id and event.parent_id is None:
            event = replace(event, parent_id=self.parent.agent_id)
        self.journal.emit(event)
        if self.proof is not None:
            self.proof.event(self, event)

    def listen(self) -> MemoryObjectReceiveStream[Event]:
        """See `Journal.listen`: the events of all agents of the session."""
        return self.journal.listen()

    def hang_up(self) -> None:
        """End the streams of all listeners."""
        self.journal.hang_up()

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
        changes = any(doing.changes for doing in doings)
        programs = [doing for doing in doings if doing.runs_programs]
        only_read = not any(doing.changes for doing in programs)
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
        async with self.looking:
            found = await anyio.to_thread.run_sync(self.workspace.drift)
        fresh = drifting.news(found, self.drift_told)
        if fresh:
            event = drifting.event_of(fresh)
            self.drift_told |= drifting.told_by([event])
            self.emit(event)
            if self.scope is not None and self.workspace.mode in ("overlay", "bind"):
                # They show through where the session has not changed the same files itself.
                files = told.shown([str(one["path"]) for one in event.changed])
                text = prompt("engine/files_changed").format(files=files)
                self.queue.put(text, Priority.NEXT, wakes=False)

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

    def deny(self, denial: JsonObject) -> None:
        """A call was denied: it counts for this agent and for those that wait for it."""
        self.denials.append(denial)
        if self.parent is not None:
            self.parent.deny(denial)

    def end_turn(self) -> None:
        """End the present turn, not the run: open calls get an "interrupted" result, and the next turn begins with
        what waits in the queue."""
        if self.turn_scope is not None:
            self.turn_scope.cancel()

    def interrupt(self) -> None:
        """End the run: open calls get an "interrupted" result, the history stays valid."""
        self.interrupted = True
        if self.scope is not None:
            self.scope.cancel()

    def fail(self, fault: SandboxAgentError) -> None:
        """End the running turn because the sandbox is gone, even while the model is still answering."""
        self.fault = fault
        self.failed.set()
        if self.scope is not None:
            self.scope.cancel()
