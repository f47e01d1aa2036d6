"""Records a run as a bundle: every step of every agent on a tape of its own, and all that a replay needs besides.

The tape is written as it happens, into the session's folder; the bundle is put together when the session is over. What
is written has passed the session's redactor, so no secret that the session knows gets there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from sandbox_agent.config import RunConfig
from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.locking import lock_of
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.engine.proof import answer_as_json, changed_of, request_as_json, takes_lane
from sandbox_agent.engine.queue import Priority, QueuedMessage
from sandbox_agent.engine.recorded_tree import BaseTree, base_of, contents_of, tree_now
from sandbox_agent.engine.scheduler import Call, holds
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.events import Event, Notice, PermissionDecided, ToolFinished
from sandbox_agent.events.redaction import Redactor
from sandbox_agent.models.base import Answer, BlockDone, Model, ModelEvent, ModelRequest
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.records import bundle
from sandbox_agent.records.noise import Noise
from sandbox_agent.records.steps import END, StepWriter, sha256_of
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import JsonObject, ToolResult

STEPS_FILE = "steps.jsonl"


class Recording:
    """The recording of one run of a session; see `engine.proof.Proof`."""

    def __init__(self, path: Path, lock: JsonObject, *, keep_tree: bool = False) -> None:
        """Nothing happens yet.

        Args:
            path: the bundle's file, which must not be there.
            lock: what is known of the run before it begins; see `engine.locking`.
            keep_tree: keep the folder as it is at the beginning also where it is large.
        """
        self.path = path
        self.lock = lock
        self.size_bytes: int | None = None
        self.fault: str | None = None
        self._keep_tree = keep_tree
        self._writer: StepWriter | None = None
        self._noise = Noise()
        self._lane = anyio.Lock()
        self._asked: dict[str, JsonObject] = {}
        self._tree: dict[str, str] = {}
        self._base: BaseTree | None = None
        self._redactor = Redactor()
        self._claimed = False
        self._last_seq: Callable[[], int] = lambda: -1

    @property
    def environment(self) -> Mapping[str, str]:
        found: dict[str, str] = self.lock["environment"]
        return found

    def claim(self, session_id: str, host: Path) -> None:
        """Make the bundle's file, so that it is known now whether it can be.

        Raises:
            ConfigError: it is there, cannot be made, or would lie in the folder that is worked on.
        """
        if self.path.resolve().is_relative_to(host):
            raise ConfigError(f"--record {self.path}: would lie in the workspace; name a file outside of it")
        bundle.claim(self.path, session_id)
        self._claimed = True

    def abandon(self) -> None:
        if self._claimed:
            self.path.unlink(missing_ok=True)

    def model(self, model: Model | None) -> Model:
        assert model is not None
        return RecordingModel(model, self)

    async def given(self, session: Session, task: str | None) -> None:
        if self._writer is not None:
            raise ConfigError("a recording has one run: open another session for the next task")
        info = await session.sandbox.start()
        if session.checkpoints is not None:
            await session.checkpoints.settled()
        self._noise = Noise([str(session.workspace.host)], [info.uid, info.gid])
        self._redactor, tape = session.secrecy.redactor, session.tape
        self._last_seq = lambda: tape.last_seq
        self._base = await base_of(session, keep=self._keep_tree)
        self._tree = await tree_now(session)
        self.lock |= {
            "session": session.id,
            "task": task,
            "workspace_host": str(session.workspace.host),
            "workspace_mode": session.workspace.mode,
            "system": list(session.system),
            "tools": list(session.pool.definitions()),
            "foreign": {
                tool.name: {"source": tool.source, "read_only": holds_always(tool)}
                for tool in session.pool.tools
                if tool.source != "builtin"
            },
            "image": info.image,
            "image_id": info.details.get("image_id"),
            "isolation": info.isolation,
            "owner": [info.uid, info.gid],
            "base": self._base.facts,
        }
        self.lock["not_pinned"] = [*self.lock.get("not_pinned", ()), *self._base.not_pinned]
        self.lock = session.secrecy.redactor.value(self.lock)
        self._writer = StepWriter(session.tape.path.with_name(STEPS_FILE))
        self._writer.begin(self.lock)
        self.append(session, "given", {"messages": session.messages, "tree": sha256_of(self._tree)})

    async def heard(self, session: Session, up_to: Priority) -> list[QueuedMessage]:
        taken = session.queue.take(up_to)
        if taken:
            messages = [
                {"content": list(one.content), "priority": int(one.priority), "wakes": one.wakes} for one in taken
            ]
            self.append(session, "heard", {"at": position(session), "messages": messages})
        return taken

    @asynccontextmanager
    async def turn(self, session: Session, calls: Sequence[Call]) -> AsyncIterator[None]:
        if not takes_lane(calls):
            yield
            return
        async with self._lane:
            self.append(session, "turn", {"calls": [call.use.id for call in calls]})
            yield
            if changes(calls):
                await self._look(session, calls[-1].use.id)

    async def leads(self, session: Session, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def led(self, session: Session, found: Mapping[str, str]) -> None:
        self.append(session, "paths", {"found": dict(found)})

    def answer(self, session: Session, call: Call) -> ToolResult | None:
        return None

    def event(self, session: Session, event: Event) -> None:
        clean = session.secrecy.redactor.event(event)
        match clean:
            case PermissionDecided():
                self.append(session, "decision", decision_as_json(clean))
            case ToolFinished():
                self.append(session, "result", result_as_json(clean))
            case _:
                pass

    async def ended(self, session: Session, status: str, text: str) -> None:
        if self._writer is None:
            return
        if session.fault is None:
            await self._look(session, None)
        data = {"status": status, "text": session.secrecy.redactor.text(text), "tree": sha256_of(self._tree)}
        self.append(session, "outcome", data)

    async def close(self, session: Session) -> None:
        if self._writer is None:
            self.path.unlink(missing_ok=True)
            self.fault = f"nothing was recorded: the run ended before its first request; {self.path} was removed"
            return
        try:
            await anyio.to_thread.run_sync(self._finish, session)
        except OSError as exc:
            self.fault = f"the bundle {self.path} could not be written: {exc.strerror or exc}; its run is not affected"
        finally:
            self._writer.close()

    def append(self, session: Session | None, kind: str, data: JsonObject, agent: str = "main") -> None:
        """Add a step of an agent's."""
        if self._writer is None:  # before the first request nothing can be replayed
            return
        if session is not None:
            agent = session.agent_id
        self._writer.append(kind, agent, self._redactor.value(data))

    def asked(self, agent: str, request: ModelRequest) -> None:
        """A request goes out: what is new in it since this agent's last one."""
        now = request_as_json(request, self._noise)
        before = self._asked.get(agent, {})
        kept = common(before.get("messages", []), now["messages"])
        data: JsonObject = {"sha256": sha256_of(now), "kept": kept, "messages": now["messages"][kept:]}
        data["seq"] = self._last_seq()
        data |= {name: now[name] for name in now if name != "messages" and now[name] != before.get(name)}
        self._asked[agent] = now
        self.append(None, "request", data, agent)

    async def _look(self, session: Session, call_id: str | None) -> None:
        """The tree as it is now, if it is another one than at the last look, or a call may have changed it."""
        if session.checkpoints is None:
            return
        now = await tree_now(session)
        changed = changed_of(self._tree, now)
        self._tree = now
        data = {"call": call_id, "sha256": sha256_of(now), "changed": changed, "seq": session.tape.last_seq}
        self.append(session, "tree", data)

    def _finish(self, session: Session) -> None:
        assert self._writer is not None
        session.tape.sync()
        events = session.tape.path.with_name(EVENTS_FILE).read_bytes()
        tape = self._writer.path.read_bytes()
        found = contents_of(session, self._base, tape)
        tree = self._base.listing if self._base is not None else None
        parts = bundle.parts_of(self.lock, events, tree)
        end = {**bundle.hashes_of(parts), "blobs": sorted(found.blobs), "left_out": found.left_out}
        self._writer.append(END, "main", end)
        parts[bundle.STEPS] = self._writer.path.read_bytes()
        self.size_bytes = bundle.write(self.path, parts, sorted(found.blobs.items()))


def recording_of(
    config: RunConfig,
    policy: Policy,
    types: Mapping[str, AgentType],
    servers: Sequence[McpServer],
    own: Own,
) -> Recording | None:
    """The recording that a run asks for; None where it asks for none.

    Args:
        config, policy, types, servers: the run's.
        own: what the program gives to the session.

    Raises:
        ConfigError: such a run cannot be recorded.
    """
    if config.record is None:
        return None
    asked = {"approver": own.approver is not None, "ask": own.ask is not None}
    foreign = {"hooks": bool(own.hooks), "tools": bool(own.tools or own.served)}
    lock = lock_of(config, policy, types, servers, **asked, **foreign)
    return Recording(config.record, lock, keep_tree=config.record_tree)


class Own(Protocol):
    """What a program gives to a session, as far as it matters here; see `engine.open`."""

    @property
    def approver(self) -> object: ...

    @property
    def ask(self) -> object: ...

    @property
    def hooks(self) -> Sequence[object]: ...

    @property
    def tools(self) -> Sequence[object]: ...

    @property
    def served(self) -> Sequence[object]: ...


class RecordingModel:
    """Passes on what a model answers, and writes it down. No call runs before its answer is whole: what it sees must
    not hang on how fast an answer streams."""

    def __init__(self, model: Model, recording: Recording) -> None:
        self._model = model
        self._recording = recording

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        agent, recording = request.agent_id, self._recording
        recording.asked(agent, request)
        try:
            async for event in self._model.stream(request):
                if isinstance(event, BlockDone):
                    continue
                if isinstance(event, Answer):
                    recording.append(None, "answer", answer_as_json(event), agent)
                yield event
        except ModelError as exc:
            fault = {"class": _class_of(exc), "text": str(exc), "kind": exc.kind, "status": exc.status}
            recording.append(None, "fault", fault, agent)
            raise

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """See `Model.window_tokens`."""
        tokens = await self._model.window_tokens(used_tokens, model)
        self._recording.append(None, "window", {"tokens": tokens, "model": model}, "")
        return tokens

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        await self._model.aclose()


def holds_always(tool: Tool) -> bool:
    """Whether a tool of a server says that it only reads, which does not hang on the input."""
    try:
        return tool.read_only(None) is True
    except Exception:  # noqa: BLE001 - a tool author's code; in doubt it does not
        return False


def _class_of(exc: ModelError) -> str:
    match exc:
        case ModelOverloadedError():
            return "overloaded"
        case ModelRejectedError():
            return "rejected"
        case _:
            return "error"


def position(session: Session) -> int:
    """How far an agent's conversation is: blocks of content."""
    return sum(len(message["content"]) for message in session.messages)


def common(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many values two lists begin with alike."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        count += 1
    return count


def changes(calls: Sequence[Call]) -> bool:
    """Whether one of these may change something."""
    return any(call.tool is not None and not holds(call.tool.read_only, call.input) for call in calls)


def decision_as_json(event: PermissionDecided) -> JsonObject:
    """What the gate said, as far as it is compared."""
    names = ("call_id", "tool", "verdict", "reason", "rule", "asked", "mode", "answered_by", "scope", "answer")
    return {name: getattr(event, name) for name in names}


def result_as_json(event: ToolFinished) -> JsonObject:
    """What a call gave."""
    content = event.content if isinstance(event.content, str) else list(event.content)
    return {
        "call_id": event.call_id,
        "tool": event.tool,
        "content": content,
        "is_error": event.is_error,
        "meta": event.meta,
    }


def told(recording: Recording) -> Notice:
    """What to tell of a recording at its end."""
    if recording.fault is not None:
        return Notice(level="warning", text=recording.fault)
    size = f"{(recording.size_bytes or 0) / 1024:,.0f} KiB"
    return Notice(level="info", text=f"recorded: {recording.path} ({size}); sandbox-agent replay {recording.path}")
