"""What recording and replaying a run have in common: where they meet the run, and how both sides are compared.

The loop asks the session's `Proof` at few places: before the first request, where waiting messages are taken, around
the calls of a turn, where paths lead, in place of running a call, and of every event. A session that is neither
recorded nor replayed has none.

Steps are keyed by agent and number within that agent, results and decisions by agent and call: never by their order
among all, which hangs on timing. The one order among agents that counts, that of their calls, is kept by the lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sandbox_agent.engine.scheduler import Call
from sandbox_agent.models.base import Answer, Model, ModelRequest
from sandbox_agent.records.noise import Noise, counts_in_tree
from sandbox_agent.types import JsonObject, ToolResult, Usage
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Node

if TYPE_CHECKING:
    from sandbox_agent.engine.queue import Priority, QueuedMessage
    from sandbox_agent.engine.session import Session
    from sandbox_agent.events import Event

WITHOUT_LANE = frozenset({"Task", "SendMessage", "TaskOutput"})
"""Tools that wait for other agents: these must be able to run their calls meanwhile."""


class Proof(Protocol):
    """See the module; `engine.recording` and `engine.replaying` are the two."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Further variables of the tools."""
        ...

    def claim(self, session_id: str, host: Path) -> None:
        """The session has got its folders.

        Raises:
            ConfigError: what is to be written cannot be.
        """
        ...

    def abandon(self) -> None:
        """There will be no session."""
        ...

    def model(self, model: Model | None) -> Model:
        """The model that the session asks, in place of this one."""
        ...

    async def given(self, session: Session, task: str | None) -> None:
        """All is there that the first request waits for."""
        ...

    async def heard(self, session: Session, up_to: Priority) -> list[QueuedMessage]:
        """In place of `MessageQueue.take`."""
        ...

    def turn(self, session: Session, calls: Sequence[Call]) -> AbstractAsyncContextManager[None]:
        """Judge and run calls that go together in here; see `one_by_one`."""
        ...

    async def leads(self, session: Session, paths: Sequence[str]) -> dict[str, str] | None:
        """Where paths lead, None where the sandbox has to be asked."""
        ...

    def led(self, session: Session, found: Mapping[str, str]) -> None:
        """Where they lead, as the sandbox said."""
        ...

    def answer(self, session: Session, call: Call) -> ToolResult | None:
        """What stands in place of running a call; None where it runs."""
        ...

    def event(self, session: Session, event: Event) -> None:
        """Something happened."""
        ...

    async def ended(self, session: Session, status: str, text: str) -> None:
        """The run is over."""
        ...

    async def close(self, session: Session) -> None:
        """The session is over; its container is gone, its contents are still there."""
        ...


def one_by_one(calls: Sequence[Call]) -> list[tuple[Call, ...]]:
    """The calls of a turn in a run that is proved: each by itself, but those that wait for other agents, which go
    together where they stand side by side."""
    batches: list[list[Call]] = []
    open_batch = False
    for call in calls:
        waits = call.use.name in WITHOUT_LANE and call.parallel_safe
        if waits and open_batch:
            batches[-1].append(call)
        else:
            batches.append([call])
        open_batch = waits
    return [tuple(batch) for batch in batches]


def takes_lane(calls: Sequence[Call]) -> bool:
    """Whether calls that go together keep all others waiting."""
    return not any(call.use.name in WITHOUT_LANE for call in calls)


def request_as_json(request: ModelRequest, noise: Noise) -> JsonObject:
    """A request in the form that is compared."""
    found: JsonObject = noise.value(
        {
            "messages": request.messages,
            "system": request.system,
            "tools": request.tools,
            "max_tokens": request.max_tokens,
            "model": request.model,
        }
    )
    return found


def answer_as_json(answer: Answer) -> JsonObject:
    """An answer, for the tape."""
    usage = asdict(answer.usage)
    if not answer.usage.cache_creation_1h_input_tokens:
        del usage["cache_creation_1h_input_tokens"]  # tapes of earlier versions have none
    return {
        "content": list(answer.content),
        "stop_reason": answer.stop_reason,
        "usage": usage,
        "model": answer.model,
        "message_id": answer.message_id,
        "malformed": answer.malformed,
        "stop_details": answer.stop_details,
    }


def answer_of_json(data: JsonObject) -> Answer:
    """The answer that was recorded."""
    return Answer(
        content=tuple(data["content"]),
        stop_reason=data["stop_reason"],
        usage=Usage(**data["usage"]),
        model=data["model"],
        message_id=data["message_id"],
        malformed=dict(data["malformed"]),
        stop_details=data["stop_details"],
    )


def tree_of(nodes: Mapping[str, Node]) -> dict[str, str]:
    """A tree as it is compared: to each path its kind, mode, and content or target. Owners and times do not count."""
    return {path: _line(node) for path, node in nodes.items() if node.kind is Kind.DIRECTORY or counts_in_tree(path)}


def changed_of(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """What differs between two trees: paths to what they are now, None where they are gone."""
    found: dict[str, str | None] = {path: one for path, one in now.items() if before.get(path) != one}
    return found | {path: None for path in before if path not in now}


def _line(node: Node) -> str:
    content = (node.sha256 or "base") if node.kind is Kind.FILE else node.target or ""
    return f"{node.kind.value} {node.mode:o} {content}".rstrip()
