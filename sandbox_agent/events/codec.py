"""Events to JSON objects and back."""

from __future__ import annotations

import dataclasses
import functools

from pydantic import TypeAdapter

from sandbox_agent.events import agents, calls, checks, jobs, mcp, network, session, steering
from sandbox_agent.events.base import Event
from sandbox_agent.types import JsonObject

EVENT_TYPES: dict[str, type[Event]] = {
    cls.type: cls
    for module in (agents, calls, checks, jobs, mcp, network, session, steering)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
}
"""By `type`: every event there is."""


def encode(event: Event) -> JsonObject:
    """The event as a JSON object, `type` first."""
    return {"type": event.type, **dataclasses.asdict(event)}


def decode(data: JsonObject) -> Event:
    """The event a JSON object stands for; fields that this version does not know are left out.

    Raises:
        ValueError: an unknown `type`, or fields that do not fit it.
    """
    name = str(data.get("type"))
    if name not in EVENT_TYPES:
        raise ValueError(f"unknown event type {name!r}")
    return _reader(name).validate_python(data)


@functools.cache
def _reader(name: str) -> TypeAdapter[Event]:
    """Checks the types of all fields: a record may have been through other hands."""
    return TypeAdapter(EVENT_TYPES[name])
