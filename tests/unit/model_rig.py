"""What the tests of the Anthropic model share: a model that talks to the double, and requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sandbox_agent.models.anthropic import AnthropicModel, create
from sandbox_agent.models.base import Answer, ModelEvent, ModelRequest
from sandbox_agent.models.retry import Retry
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.types import JsonObject

KEY = "sk-ant-canary-0123456789"
TOOL: JsonObject = {"name": "Read", "description": "reads", "input_schema": {"type": "object", "properties": {}}}
TASK: JsonObject = {"role": "user", "content": [{"type": "text", "text": "do it"}]}
REQUEST = ModelRequest(messages=(TASK,), tools=(TOOL,), system=({"type": "text", "text": "be good"},))
GOOD: JsonObject = {"text": "good"}


async def no_sleep(seconds: float) -> None:
    """In place of a wait."""


@asynccontextmanager
async def connected(
    turns: Any, *, max_attempts: int = 10, silence_timeout_s: float = 30.0, **double: Any
) -> AsyncIterator[tuple[AnthropicModel, ApiDouble]]:
    """A model and the double it talks to."""
    async with ApiDouble(turns, **double) as api:
        model = create(
            "claude-test",
            environ={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.base_url},
            retry=Retry(max_attempts=max_attempts, sleep=no_sleep),
            silence_timeout_s=silence_timeout_s,
        )
        try:
            yield model, api
        finally:
            await model.aclose()


async def collect(model: AnthropicModel, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def ask(model: AnthropicModel, request: ModelRequest = REQUEST) -> Answer:
    answer = (await collect(model, request))[-1]
    assert isinstance(answer, Answer)
    return answer


def followed_by(answer: Answer, *results: JsonObject) -> ModelRequest:
    """The request after an answer and its results."""
    said: JsonObject = {"role": "assistant", "content": list(answer.content)}
    return ModelRequest(messages=(TASK, said, {"role": "user", "content": list(results)}), tools=(TOOL,))


def result(call: JsonObject, text: str = "ok") -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text}
