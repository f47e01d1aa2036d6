"""Events to JSON objects and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from sandbox_agent.events import calls, session
from sandbox_agent.events.base import Event
from sandbox_agent.types import JsonObject, Usage

EVENT_TYPES: dict[str, type[Event]] = {
    cls.type: cls
    for module in (calls, session)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
}
"""By `type`: every event there is."""


def encode(event: Event) -> JsonObject:
    """The event as a JSON object, `type` first."""
    return {"type": event.type, **dataclasses.asdict(event)}


def decode(data: JsonObject) -> Event:
    """The event a JSON object stands for.

    Raises:
        ValueError: an unknown `type`, or fields that do not fit it.
    """
    cls = EVENT_TYPES.get(str(data.get("type")))
    if cls is None:
        raise ValueError(f"unknown event type {data.get('type')!r}")
    fields: dict[str, Any] = {}
    for spec in dataclasses.fields(cls):
        if spec.name in data:
            value = data[spec.name]
            fields[spec.name] = tuple(value) if isinstance(value, list) else value
    if isinstance(fields.get("usage"), dict):
        fields["usage"] = Usage(**fields["usage"])
    try:
        return cls(**fields)
    except TypeError as exc:
        raise ValueError(f"event {cls.type}: {exc}") from exc
