"""The model of a replay: its answers are those of the bundle, and what it is asked is compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from sandbox_agent.engine.proof import answer_of_json, request_as_json
from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import ModelEvent, ModelRequest, TextPiece
from sandbox_agent.records.reading import REPLY
from sandbox_agent.records.steps import Step, sha256_of
from sandbox_agent.types import JsonObject

if TYPE_CHECKING:
    from sandbox_agent.engine.replaying import Replaying

_FAULTS = {"overloaded": ModelOverloadedError, "rejected": ModelRejectedError}


class ReplayedModel:
    """Answers each agent with what it was answered, in order."""

    def __init__(self, replay: Replaying) -> None:
        self._replay = replay
        self._asked: dict[str, JsonObject] = {}

    @property
    def name(self) -> str:
        """As it was called."""
        return str(self._replay.bundle.lock["model"])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Compare the request, then answer.

        Raises:
            ReplayMismatchError: it is another request than the recorded one, or there was none.
            ModelError: the recorded one was not answered.
        """
        replay, agent = self._replay, request.agent_id
        now = request_as_json(request, replay.noise)
        step = replay.tape.take(agent, "request")
        if step is not None:
            recorded = self._asked[agent] = self._recorded(agent, step)
            replay.compare(step, "the request to the model", recorded, now)
            replay.compare(step, "the request as it is in the bundle", step.data["sha256"], sha256_of(recorded))
        reply = replay.tape.take(agent, REPLY) if step is not None else None
        if reply is None:
            await self._nothing_more(agent, now)
            return
        if reply.kind == "fault":
            data = reply.data
            raise _FAULTS.get(data["class"], ModelError)(data["text"], kind=data["kind"], status=data["status"])
        answer = answer_of_json(reply.data)
        for block in answer.content:
            if block.get("type") == "text" and block.get("text"):
                yield TextPiece(str(block["text"]))
        yield answer

    async def _nothing_more(self, agent: str, now: JsonObject) -> None:
        replay = self._replay
        if not replay.broken_off:
            number = replay.bundle.steps[-1].number
            raise replay.beyond(number, agent, now)
        replay.stop()
        await anyio.sleep_forever()  # the run ends here as the recorded one did

    def _recorded(self, agent: str, step: Step) -> JsonObject:
        """The whole request that a step stands for."""
        before = self._asked.get(agent, {})
        data = {key: one for key, one in step.data.items() if key not in ("sha256", "kept", "messages", "seq")}
        messages = [*before.get("messages", [])[: step.data["kept"]], *step.data["messages"]]
        return {"model": None, **before, **data, "messages": messages}

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """What was known then."""
        step = self._replay.tape.take("", "window")
        return step.data["tokens"] if step is not None else None

    async def aclose(self) -> None:
        """Nothing to give back."""
