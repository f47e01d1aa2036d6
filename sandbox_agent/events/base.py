"""The base of all events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. `agent_id` says whose it is ("main" or a sub-agent), `parent_id` is that agent's parent."""

    type: ClassVar[str] = ""
    recorded: ClassVar[bool] = True
    agent_id: str = "main"
    parent_id: str | None = None
