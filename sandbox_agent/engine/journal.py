"""Where everything that happens in a session goes, once: its record, the conversation of the agent it is of, and
whoever listens. All agents of a session share one."""

from __future__ import annotations

import math

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sandbox_agent.engine import history
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.events import Event
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import JsonObject


class Journal:
    """The one writer of a session's events. `conversations` has the messages of every agent, by its id."""

    def __init__(self, tape: TapeWriter, secrecy: Secrecy) -> None:
        self.tape = tape
        self.secrecy = secrecy
        self.conversations: dict[str, list[JsonObject]] = {}
        self._listeners: list[MemoryObjectSendStream[Event]] = []
        self._unheard: list[Event] = []

    def emit(self, event: Event) -> None:
        """Record an event, extend the conversation by it, and pass it to whoever listens. Never waits.

        Secrets are taken out first, so nobody gets to see one: see `secrecy`.
        """
        for clean in self.secrecy.pass_on(event):
            self._emit(clean)

    def conversation(self, agent_id: str) -> list[JsonObject]:
        """The messages of one agent; an empty list that will grow where it has said nothing yet."""
        return self.conversations.setdefault(agent_id, [])

    def listen(self) -> MemoryObjectReceiveStream[Event]:
        """All events nobody has heard yet (the session's start among them), then all from now on.

        The buffer is unbounded: the loop never waits for a front end.
        """
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        for event in self._unheard:
            send.send_nowait(event)
        self._unheard.clear()
        self._listeners.append(send)
        return receive

    def hang_up(self) -> None:
        """End the streams of all listeners."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _emit(self, event: Event) -> None:
        if event.recorded:
            self.tape.append(event)
            history.extend(self.conversation(event.agent_id), event)
        if not self._listeners:
            self._unheard.append(event)
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(event)
            except anyio.BrokenResourceError:  # it went away; the record is what counts
                listener.close()
                self._listeners.remove(listener)
