"""Replays a bundle: the same run once more, compared with what was recorded, up to the first difference.

The model's answers come from the bundle in any case, and every request is compared with the one that was recorded.
*Live*, the tools really run, in a fresh container, in the recorded order; their results and the tree are compared.
*Frozen*, results come from the bundle as well, and the gate decides anew from the bundle's policy and the recorded
facts about paths: no container, no engine, no network.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.child import first_of
from sandbox_agent.engine.locking import policy_in, types_in
from sandbox_agent.engine.proof import changed_of, takes_lane
from sandbox_agent.engine.queue import Priority, QueuedMessage
from sandbox_agent.engine.recorded_tree import base_of, tree_now
from sandbox_agent.engine.recording import changes, decision_as_json, position, result_as_json
from sandbox_agent.engine.replayed_model import ReplayedModel
from sandbox_agent.engine.scheduler import Call
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, ReplayMismatchError
from sandbox_agent.events import Event, PermissionDecided, ToolFinished, UserMessage
from sandbox_agent.models.base import Model
from sandbox_agent.policy.elsewhere import refuse_looser
from sandbox_agent.policy.load import administrators_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.records.bundle import Bundle
from sandbox_agent.records.noise import Noise
from sandbox_agent.records.reading import Tape
from sandbox_agent.records.steps import Step, sha256_of
from sandbox_agent.tools.questions import Question, Reply
from sandbox_agent.types import JsonObject, ToolResult

PATIENCE_S = 120.0
"""For what the recording has and the replay does not get to: another agent's turn, a message of a job."""

RUN_ALL_THE_SAME = frozenset({"Task", "SendMessage", "TodoWrite", "EnterPlanMode", "ExitPlanMode", "StructuredOutput"})
"""Tools that are the engine's own doing: they run in a frozen replay, too."""

ANSWERED_ALWAYS = frozenset({"AskUserQuestion"})
"""Tools whose results are a person's: these come from the bundle in a live replay, too."""

BROKEN_OFF = frozenset({"interrupted", "terminated"})
"""Ends that came from outside: a replay that gets as far has agreed."""


class Replaying:
    """One replay of a bundle; see `engine.proof.Proof`. `fault` is the first difference, `steps_done` counts what was
    compared, `agreed` says that it came to the recorded end."""

    def __init__(self, bundle: Bundle, *, frozen: bool, network: bool = False) -> None:
        """
        Args:
            bundle: what was recorded.
            frozen: see the module.
            network: whether a live replay may reach the hosts that the recorded run could.

        Raises:
            ReplayMismatchError: the lock is not usable.
            ConfigError: it would reach hosts, and may not; or the administrator's policy does not bear its policy.
        """
        self.bundle = bundle
        self.frozen = frozen
        self.tape = Tape(bundle.steps)
        self.noise = Noise([str(bundle.lock["workspace_host"])], bundle.lock["owner"])
        self.policy: Policy = policy_in(bundle.lock)
        if self.policy.sandbox.allow_hosts and not (frozen or network):
            hosts = ", ".join(entry.text for entry in self.policy.sandbox.allow_hosts)
            raise ConfigError(f"{bundle.path}: its run could reach {hosts}; --network lets the replay reach them, too")
        administrators = None if frozen else administrators_policy()
        if administrators is not None:
            refuse_looser(self.policy, administrators)
        self.types: Mapping[str, AgentType] = types_in(bundle.lock)
        self.task: str = bundle.lock["task"]
        self.fault: ReplayMismatchError | None = None
        self.agreed = False
        self._session: Session | None = None
        self._tree: dict[str, str] = {}
        self._turned = anyio.Event()
        self._inbox: dict[str, list[QueuedMessage]] = {}

    @property
    def outcome(self) -> JsonObject:
        """How the recorded run ended."""
        step = self.tape.last("outcome")
        return step.data if step is not None else {"status": "interrupted", "text": ""}

    @property
    def environment(self) -> Mapping[str, str]:
        found: dict[str, str] = self.bundle.lock["environment"]
        return found

    def claim(self, session_id: str, host: Path) -> None:
        """Nothing is written."""

    def abandon(self) -> None:
        """Nothing was."""

    def model(self, model: Model | None) -> Model:
        return ReplayedModel(self)

    async def given(self, session: Session, task: str | None) -> None:
        self._session = session
        host = str(self.bundle.lock["workspace_host"])
        session.ctx.workspace_host = host  # the model's paths are those of the recording
        step = self.expect(session, "given")
        self.compare(step, "the tools", self.bundle.lock["tools"], session.pool.definitions())
        if self.frozen:
            for message in step.data["messages"]:
                session.emit(UserMessage(content=tuple(message["content"])))
            return
        info, lock = await session.sandbox.start(), self.bundle.lock
        self.noise = Noise([host, str(session.workspace.host)], [*lock["owner"], info.uid, info.gid])
        self.compare(step, "what the model is given first", step.data["messages"], session.messages)
        if lock["image_id"] is not None:
            self.compare(step, f"the image {lock['image']}", lock["image_id"], info.details.get("image_id"))
        if session.checkpoints is None:
            raise self.differs(step, "the tree", "was compared", "there are no checkpoints in this run")
        await session.checkpoints.settled()
        base = await base_of(session, keep=False)
        if lock["base"]["sha256"] is not None:
            self.compare(step, "the folder at the beginning", lock["base"]["sha256"], base.facts["sha256"])
        self._tree = await tree_now(session)
        self.compare(step, "the tree at the beginning", step.data["tree"], sha256_of(self._tree))

    async def heard(self, session: Session, up_to: Priority) -> list[QueuedMessage]:
        agent = session.agent_id
        step = self.tape.peek(agent, "heard")
        if step is None or step.data["at"] != position(session):
            return []
        self.tape.take(agent, "heard")
        recorded = [
            QueuedMessage(tuple(one["content"]), Priority(one["priority"]), one["wakes"])
            for one in step.data["messages"]
        ]
        # Notes that wake nobody tell of the person's folder, and there is another one here.
        if self.frozen or not any(one.wakes for one in recorded):
            return recorded
        inbox = self._inbox.setdefault(agent, [])
        with anyio.move_on_after(PATIENCE_S):
            while True:
                inbox += session.queue.take(Priority.LATER)
                found = self._found(recorded, inbox)
                if found is not None:
                    for one in found:
                        if one in inbox:
                            inbox.remove(one)
                    return found
                await session.queue.arrived()
        words = [one.content for one in recorded]
        raise self.differs(step, "a message for the agent", words, [one.content for one in inbox])

    def _found(self, recorded: Sequence[QueuedMessage], inbox: Sequence[QueuedMessage]) -> list[QueuedMessage] | None:
        left, found = list(inbox), []
        for one in recorded:
            wanted = self.noise.value(one.content)
            same = next((other for other in left if self.noise.value(other.content) == wanted), None)
            if same is None and one.wakes:
                return None
            if same is not None:
                left.remove(same)
            found.append(same or one)
        return found

    @asynccontextmanager
    async def turn(self, session: Session, calls: Sequence[Call]) -> AsyncIterator[None]:
        if not takes_lane(calls):
            yield
            return
        step = self.expect(session, "turn")
        ids = [call.use.id for call in calls]
        self.compare(step, "the next calls", step.data["calls"], ids)
        if self.frozen:
            yield
            return
        with anyio.move_on_after(PATIENCE_S) as patience:
            while self.tape.next_turn != step.number:
                await self._turned.wait()
        if patience.cancelled_caught:
            raise self.differs(
                step, "the order of the agents' calls", f"step {self.tape.next_turn} first", "it never came"
            )
        yield
        if changes(calls):
            await self._look(session, calls[-1].use.id)
        self.tape.turn_done()
        self._turned.set()
        self._turned = anyio.Event()

    async def leads(self, session: Session, paths: Sequence[str]) -> dict[str, str] | None:
        if not self.frozen:
            return None
        step = self.expect(session, "paths")
        found: dict[str, str] = step.data["found"]
        self.compare(step, "the paths that are asked for", sorted(found), sorted(set(paths)))
        return found

    def led(self, session: Session, found: Mapping[str, str]) -> None:
        step = self.expect(session, "paths")
        self.compare(step, "where paths lead", step.data["found"], dict(found))

    def answer(self, session: Session, call: Call) -> ToolResult | None:
        name = call.use.name
        if name in RUN_ALL_THE_SAME or not (self.frozen or name in ANSWERED_ALWAYS):
            return None
        step = self.tape.of_call(session.agent_id, "result", call.use.id)
        if step is None:
            raise self.unexpected(session, f"a call of {name}", call.use.input)
        data = step.data
        cwd = data["meta"].get("cwd")
        if isinstance(cwd, str):
            session.ctx.cwd = cwd
        content = data["content"]
        return ToolResult(
            content if isinstance(content, str) else tuple(content), is_error=data["is_error"], meta=data["meta"]
        )

    def event(self, session: Session, event: Event) -> None:
        if self.fault is not None or session.fault is not None or session.interrupted:
            return  # what ends with a run that is broken off says nothing
        clean = session.secrecy.redactor.event(event)
        match clean:
            case PermissionDecided():
                self._event(session, "decision", f"the decision on {clean.tool}", decision_as_json(clean))
            case ToolFinished():
                self._event(session, "result", f"the result of {clean.tool}", result_as_json(clean))
            case _:
                pass

    async def ended(self, session: Session, status: str, text: str) -> None:
        if self.fault is not None:
            raise self.fault
        step = self.tape.last("outcome")
        if step is None or self._broken_off(step):
            self.agreed = True
            return
        if session.fault is not None or self._session is None:
            return  # the engine or the folder failed, which is no difference
        self.compare(step, "how the run ended", step.data["status"], status)
        self.compare(step, "the last words", step.data["text"], session.secrecy.redactor.text(text))
        if not self.frozen:
            final = self.expect(session, "tree")
            self._tree_is(final, await tree_now(session))
            self.compare(step, "the tree at the end", step.data["tree"], sha256_of(self._tree))
        left = self.tape.left()
        if left is not None and not self.tape.has_background:
            raise self.differs(left, "what comes next", f"{left.kind} of {left.agent}", "the run is over")
        self.agreed = True

    async def close(self, session: Session) -> None:
        """Nothing to write."""

    async def approve(self, question: ApprovalRequest) -> ApprovalAnswer:
        """What the person answered, see `Approver`."""
        step = self.tape.of_call(question.agent_id, "decision", question.call_id)
        if step is None or not step.data["asked"]:
            why = "nobody was asked about it when this was recorded"
            return ApprovalAnswer(False, reason=why)
        data = step.data
        scope = data["scope"] or "once"
        by = data["answered_by"] or "person"
        return ApprovalAnswer(data["verdict"] == "allow", scope=scope, reason=data["answer"], by=by)

    async def ask(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        """Nobody: the results of such calls are in the bundle."""
        return None

    def expect(self, session: Session, kind: str) -> Step:
        """The next step of this kind of the agent.

        Raises:
            ReplayMismatchError: the recording has none.
        """
        step = self.tape.take(session.agent_id, kind)
        if step is None:
            raise self.unexpected(session, f"another step ({kind})", "")
        return step

    def compare(self, step: Step, what: str, recorded: Any, now: Any) -> None:
        """
        Raises:
            ReplayMismatchError: they are not the same but for noise.
        """
        one, other = self.noise.value(recorded), self.noise.value(now)
        if one != other:
            raise self.differs(step, what, one, other)

    def differs(self, step: Step, what: str, recorded: Any, now: Any) -> ReplayMismatchError:
        """A difference: it ends the run, whichever agent found it. To be raised where that can be."""
        text = f"step {step.number} (agent {step.agent}): {what}: not what was recorded"
        return self._end(step.number, step.agent, what, text, recorded, now)

    def unexpected(self, session: Session, what: str, now: Any) -> ReplayMismatchError:
        """The replay goes on where the recording has nothing more."""
        number = self.bundle.steps[-1].number
        text = f"step {number} (agent {session.agent_id}): {what}: the recording has no such step any more"
        return self._end(number, session.agent_id, what, text, "(nothing)", now)

    def beyond(self, number: int, agent: str, now: Any) -> ReplayMismatchError:
        """An agent asks the model once more than it did."""
        what = "the request to the model"
        text = f"step {number} (agent {agent}): {what}: the recording has no more requests of this agent"
        return self._end(number, agent, what, text, "(nothing)", now)

    def stop(self) -> None:
        """The recorded run was broken off here."""
        if self._session is not None:
            first_of(self._session).interrupt()

    def _end(self, number: int, agent: str, what: str, text: str, recorded: Any, now: Any) -> ReplayMismatchError:
        sides = {"recorded": words_of(recorded), "replayed": words_of(now)}
        fault = ReplayMismatchError(text, step=number, agent=agent, what=what, **sides)
        if self.fault is None:
            self.fault = fault
            if self._session is not None:
                first_of(self._session).fail(fault)
        return self.fault

    def _event(self, session: Session, kind: str, what: str, now: JsonObject) -> None:
        step = self.tape.take_of_call(session.agent_id, kind, now["call_id"])
        if step is None:
            if not self.broken_off:
                self.unexpected(session, what, now)
            return
        one, other = (
            self.noise.value({**side, "meta": self.noise.meta(side.get("meta", {}))}) for side in (step.data, now)
        )
        if one != other:
            self.differs(step, what, one, other)

    async def _look(self, session: Session, call_id: str) -> None:
        step = self.expect(session, "tree")
        self.compare(step, "the call after which the tree is compared", step.data["call"], call_id)
        self._tree_is(step, await tree_now(session))

    def _tree_is(self, step: Step, now: dict[str, str]) -> None:
        changed = changed_of(self._tree, now)
        self._tree = now
        if sha256_of(now) != step.data["sha256"]:
            self_changed = {path: line for path, line in changed.items() if step.data["changed"].get(path, "") != line}
            recorded = {path: line for path, line in step.data["changed"].items() if changed.get(path, "") != line}
            raise self.differs(step, "the tree", recorded, self_changed)

    @property
    def broken_off(self) -> bool:
        """Whether the recorded run did not end by itself."""
        step = self.tape.last("outcome")
        return step is None or self._broken_off(step)

    def _broken_off(self, step: Step) -> bool:
        return step.data["status"] in BROKEN_OFF


def words_of(value: Any) -> str:
    """One side of a difference, for people and for a comparison line by line."""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str)
    )
