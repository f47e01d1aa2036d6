"""A chat as it stands: what runs, what was used, which messages wait. Folded from events; it draws nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_agent.engine.compaction import last_todos
from sandbox_agent.engine.queue import Priority, QueuedMessage
from sandbox_agent.engine.session import Session
from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    ConversationCleared,
    Event,
    RunFinished,
    ToolFinished,
    UserMessage,
)
from sandbox_agent.frontends import words
from sandbox_agent.frontends.outcome import plain_text
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

SHOWN_WAITING = 3
LINE_CHARS = 100


@dataclass(slots=True)
class AgentSeen:
    """A sub-agent: its last task, and how that ended; None while it is at work."""

    started: AgentStarted
    ended: AgentFinished | None = None


@dataclass(slots=True)
class Talk:
    """One session with its person. `running_since_s` is None while the agent rests; `last` is how the last run ended.

    `runs` and `turns` are of what has ended, `agents` has the sub-agents by their id.
    """

    session: Session
    running_since_s: float | None = None
    last: RunFinished | None = None
    runs: int = 0
    turns: int = 0
    todos: Sequence[JsonObject] = ()
    agents: dict[str, AgentSeen] = field(default_factory=dict)
    waiting: list[QueuedMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recall()

    def recall(self) -> None:
        """The todo list is that of the conversation, which goes on, or was rewound."""
        self.todos = last_todos(self.session.messages) or ()

    def feed(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case ToolFinished(is_error=False) if isinstance(event.meta.get("todos"), list) and _main(event):
                self.todos = event.meta["todos"]
            case UserMessage() | RunFinished() if _main(event):
                self._delivered()
                if isinstance(event, RunFinished):
                    self.last = event
                    self.runs += 1
                    self.turns += event.turns
            case AgentStarted():
                self.agents[event.agent_id] = AgentSeen(event)
            case AgentFinished() if event.agent_id in self.agents:
                self.agents[event.agent_id].ended = event
            case ConversationCleared():
                self.todos = ()
            case _:
                pass

    def say(self, text: str) -> None:
        """A message of the person's; it goes in before the agent's next step, or begins a run."""
        self.waiting.append(self.session.queue.put(text, Priority.NEXT))

    def hurry(self) -> bool:
        """Deliver what waits at once: it ends the present turn. False where nothing waits."""
        texts = self.texts_waiting()
        for message in self.waiting:
            self.session.queue.withdraw(message)
        self.waiting = [self.session.queue.put(text, Priority.NOW) for text in texts]
        return bool(texts)

    def texts_waiting(self) -> list[str]:
        """The messages that the agent has not got yet, in their order."""
        self._delivered()
        return [plain_text(message.content) for message in self.waiting]

    def _delivered(self) -> None:
        self.waiting[:] = [message for message in self.waiting if self.session.queue.holds(message)]

    def status(self) -> str:
        """One sanitised line: mode, model, and what is going on."""
        session = self.session
        jobs = len(session.jobs.running())
        parts = [session.mode.value, sanitise(session.model.name)]
        if self.running_since_s is not None:
            seconds = int(time.monotonic() - self.running_since_s)
            shown = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02d} s"
            parts.append(f"working {shown}")
            parts.append("Esc delivers it now" if self.waiting else "Esc interrupts")
        if jobs:
            parts.append(words.count(jobs, "job"))
        if self.running_since_s is None:
            parts.append("/help")
        return " · ".join(parts)

    def notes(self) -> list[str]:
        """Sanitised lines while the agent works: the step of its todo list, and messages that wait."""
        if self.running_since_s is None:
            return []
        lines = []
        done = sum(one.get("status") == "completed" for one in self.todos)
        for todo in self.todos:
            if todo.get("status") == "in_progress":
                doing = sanitise(str(todo.get("activeForm") or todo.get("content")))
                lines.append(f"[>] {words.shorten(doing, LINE_CHARS)} ({done} of {len(self.todos)} done)")
        texts = [sanitise(plain_text(message.content)) for message in self.waiting]
        lines += [f"waits: {words.shorten(text, LINE_CHARS)}" for text in texts[:SHOWN_WAITING]]
        if len(texts) > SHOWN_WAITING:
            lines.append(f"waits: {len(texts) - SHOWN_WAITING} more")
        return lines


def last_words(messages: Sequence[JsonObject]) -> list[tuple[str, str]]:
    """Where a conversation stands: the role and the text of the last message with a text of each side, in order."""
    last: dict[str, tuple[str, str]] = {}
    for message in messages:
        texts = [str(block.get("text", "")) for block in message["content"] if block.get("type") == "text"]
        if texts:
            last.pop(message["role"], None)
            last[message["role"]] = (message["role"], texts[-1].strip())
    return list(last.values())


def _main(event: Event) -> bool:
    return event.agent_id == "main"
