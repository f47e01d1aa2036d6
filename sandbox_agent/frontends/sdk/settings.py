"""What a program asked for when it started us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sandbox_agent.config import RunConfig
from sandbox_agent.types import Mode

Apply = Literal["consent", "never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkSettings:
    """One process. Everything left out is as if the program had not asked for it."""

    config: RunConfig
    asks: bool = False
    """Whether the program answers permission questions; nobody does otherwise."""
    apply: Apply = "consent"
    """Whether changes go to the folder after each result: always, never, or where the program consented."""
    consented: bool = False
    """Whether the program has let files be changed by a rule of its own."""
    tools: Sequence[str] | None = None
    """The built-in tools that there are to be; None is all."""
    system: str | None = None
    """In place of the usual instruction of the agent; None leaves that."""
    system_added: str | None = None
    """Behind the instruction."""
    sdk_servers: Sequence[str] = ()
    """Names of MCP servers inside the program."""
    partial: bool = False
    hook_events: bool = False
    reads_state: bool = False
    """Whether the program wants to know whether a turn is under way."""
    session_id: str | None = None
    """What the session is called on the wire in place of its own ID."""
    notes: Sequence[str] = field(default_factory=tuple)
    """Lines for the person about what was asked for and is different here."""


def lets_edit(mode: Mode) -> bool:
    """Whether a permission mode is a consent to changes of files."""
    return mode in (Mode.ACCEPT_EDITS, Mode.BYPASS)
