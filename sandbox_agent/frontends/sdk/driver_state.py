"""What a driven session is at any moment: shared by who listens, who answers and who runs the turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.session import Session
from sandbox_agent.frontends.sdk.hooks import SdkHook
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.settings import SdkSettings
from sandbox_agent.frontends.sdk.wire import Wire
from sandbox_agent.types import JsonObject


@dataclass(slots=True)
class State:
    """`inbox` has the user's messages that nobody has taken up yet; `changed` is set when one came, or the end."""

    wire: Wire
    lines: Lines
    settings: SdkSettings
    session: Session | None = None
    running: bool = False
    begun: anyio.Event = field(default_factory=anyio.Event)
    ready: anyio.Event = field(default_factory=anyio.Event)
    inbox: deque[JsonObject] = field(default_factory=deque)
    changed: anyio.Event = field(default_factory=anyio.Event)
    hooks: list[SdkHook] = field(default_factory=list)
    agents: Mapping[str, AgentType] = field(default_factory=dict)
    next_model: str | None = None
    fault: str | None = None
    """What the program sent that cannot be used, and that ends the process."""

    def note(self) -> None:
        """Wake who waits for something to do."""
        self.changed.set()
        self.changed = anyio.Event()

    async def opened(self) -> Session:
        """The session, once it is there."""
        await self.ready.wait()
        assert self.session is not None
        return self.session

    def tell(self, state: str) -> None:
        """Say whether a turn is under way, if the program wants to know."""
        if self.settings.reads_state:
            fields = {"subtype": "session_state_changed", "state": state, "sdk_host_only": True}
            self.wire.send(self.lines.line("system", **fields))
