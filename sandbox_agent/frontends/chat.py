"""A chat: one session, many runs. What the person writes goes into the session's queue; a run begins when something
waits there while the agent rests, be it a message or the end of something in the background.

talk ─ _rest    wait, and show what happens meanwhile
     └ _work    one run, event by event
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sandbox_agent.engine.loop import run
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.events import Event, UserMessage
from sandbox_agent.frontends import chat_commands, words
from sandbox_agent.frontends.chat_commands import COMMANDS, Command, Desk
from sandbox_agent.frontends.chat_complete import ChatCompleter
from sandbox_agent.frontends.chat_history import ChatHistory
from sandbox_agent.frontends.chat_screen import ChatScreen
from sandbox_agent.frontends.chat_talk import Talk, last_words
from sandbox_agent.frontends.sanitise import sanitise

RECALLED_LINES = 12
_ENDED_BY_ITSELF = ("done", "denied")
_WORKS = "The agent is at work: Esc stops it, then try again."


class Chat:
    """The person's side of a session: a `Person` for the screen. `interrupted` says that a second Ctrl-C ended it."""

    def __init__(
        self,
        session: Session,
        screen: ChatScreen,
        history: ChatHistory,
        feed: Callable[[Event], None],
        *,
        verbose: bool = False,
    ) -> None:
        """Nothing begins yet.

        Args:
            session: open, with no run under way.
            screen: where the person is.
            history: what they wrote; saved here, once the session's secrets are known.
            feed: shows and folds every event.
            verbose: whole diffs.
        """
        self.talk = Talk(session)
        self.interrupted = False
        self._session = session
        self._screen = screen
        self._history = history
        self._feed_view = feed
        self._desk = Desk(self.talk, screen, self.leave, verbose)
        self._left = anyio.Event()
        self._resting = anyio.Lock()
        self._written = anyio.Event()
        self._paused = False
        self._stoppable: anyio.CancelScope | None = None
        self._lines: MemoryObjectSendStream[str] | None = None
        self._history_told = False

    def submit(self, text: str) -> None:
        """See `Person.submit`. A message that follows a command comes after it."""
        if self._lines is not None:
            self._lines.send_nowait(text)

    def interrupt(self) -> bool:
        """See `Person.interrupt`: what waits is delivered at once, else the run ends."""
        if self._stoppable is not None:
            self._stoppable.cancel()
            return True
        if self.talk.running_since_s is None:
            return False
        if not self.talk.hurry():
            self._session.interrupt()
        return True

    def stop(self) -> None:
        """The same, for a signal."""
        self.interrupt()

    def leave(self, *, interrupted: bool = False) -> None:
        """See `Person.leave`."""
        self.interrupted = self.interrupted or interrupted
        self._left.set()
        if self._stoppable is not None:
            self._stoppable.cancel()
        self._session.interrupt()
        self._screen.close()  # with it goes a question that nobody will answer any more

    def status(self) -> str:
        """See `Person.status`."""
        return "leaving" if self._left.is_set() else self.talk.status()

    def notes(self) -> Sequence[str]:
        """See `Person.notes`."""
        return self.talk.notes()

    async def hold(self, first: str | None = None) -> None:
        """Talk until the person leaves, or the sandbox is gone.

        Args:
            first: a message to begin with.
        """
        self._recall()
        if first is not None:
            self.talk.say(first)
        completer = ChatCompleter(
            {name: command.help for name, command in COMMANDS.items()},
            chat_commands.arguments_of,
            lambda: self._session.checkpoints.nodes if self._session.checkpoints is not None else {},
        )
        self._lines, lines = anyio.create_memory_object_stream[str](math.inf)
        with self._lines, lines:
            async with anyio.create_task_group() as group:
                await group.start(self._screen.run, self, completer)
                try:
                    group.start_soon(self._take_lines, lines)
                    while not self._left.is_set() and self._session.fault is None:
                        await self._rest()
                        await self._work()
                finally:
                    self._screen.close()
                    group.cancel_scope.cancel()
            late = [lines.receive_nowait() for _ in range(lines.statistics().current_buffer_used)]
        self._save_history()
        for text in (*self.talk.texts_waiting(), *late):
            self._screen.printer.line(f"not delivered: {sanitise(text)}", "yellow")

    def _recall(self) -> None:
        """Of a session that goes on: where the conversation stands."""
        for role, text in last_words(self._session.messages):
            lines = sanitise(text, newlines=True, tabs=True).splitlines()
            if len(lines) > RECALLED_LINES:
                lines[RECALLED_LINES:] = [f"... {words.count(len(lines) - RECALLED_LINES, 'line')} more"]
            self._screen.printer.line(("> " if role == "user" else "") + "\n".join(lines), "dim")

    async def _rest(self) -> None:
        """Show what happens until a message waits, the person leaves, or the sandbox is gone.

        When the last run did not end by itself, only the person can have the next one begin.
        """
        async with anyio.create_task_group() as group:

            async def until(comes: Callable[[], Awaitable[None]]) -> None:
                await comes()
                group.cancel_scope.cancel()

            if self._paused and not self._session.queue.waiting(Priority.NEXT):
                self._written = anyio.Event()
                group.start_soon(until, self._written.wait)
            else:
                group.start_soon(until, self._session.queue.arrived)
            group.start_soon(until, self._left.wait)
            group.start_soon(until, self._session.failed.wait)
            events = self._session.listen()
            try:
                async for event in events:
                    self._feed(event)
            finally:
                with events:
                    while events.statistics().current_buffer_used:
                        self._feed(events.receive_nowait())
                self._session.hang_up()

    async def _work(self) -> None:
        """One run with all that waits."""
        async with self._resting:
            if self._left.is_set() or self._session.fault is not None or not self._session.queue.waiting():
                return
            self.talk.running_since_s = time.monotonic()
            self._screen.refresh()
            try:
                async with aclosing(run(self._session, None)) as events:
                    async for event in events:
                        self._feed(event)
            finally:
                self.talk.running_since_s = None
                self._screen.refresh()
        ended = self.talk.last
        self._paused = ended is None or ended.status not in _ENDED_BY_ITSELF
        if ended is not None and ended.status == "sandbox_error":
            self._left.set()  # there is nothing left to talk about

    async def _take_lines(self, lines: MemoryObjectReceiveStream[str]) -> None:
        """What was entered, line by line, beside what runs: commands are done, messages queued."""
        async for text in lines:
            if chat_commands.is_command(text):
                await self._obey(text)
            else:
                self.talk.say(text)
            if self.talk.waiting:  # a command, too, may have something said
                self._written.set()
                self._screen.refresh()

    async def _obey(self, text: str) -> None:
        self._screen.printer.line()
        self._screen.printer.line(sanitise(text), "bold")
        command = COMMANDS.get(text[1:].partition(" ")[0])
        if command is None or not command.resting:
            await chat_commands.obey(self._desk, text)
        elif self._resting.locked() or self._session.queue.waiting(Priority.NEXT):
            self._screen.printer.line(_WORKS, "yellow")
        else:
            async with self._resting:
                await self._at_rest(command, text)

    async def _at_rest(self, command: Command, text: str) -> None:
        with anyio.CancelScope() as scope:
            self._stoppable = scope if command.stops else None
            try:
                await chat_commands.obey(self._desk, text)
            finally:
                self._stoppable = None
        if scope.cancelled_caught:
            self._screen.printer.line("Stopped; nothing was changed.", "yellow")

    def _feed(self, event: Event) -> None:
        self.talk.feed(event)
        self._feed_view(event)
        if isinstance(event, UserMessage):
            self._save_history()
        self._screen.refresh()

    def _save_history(self) -> None:
        self._history.save(self._session.secrecy.redactor.text)
        if self._history.fault is not None and not self._history_told:
            self._history_told = True
            self._screen.printer.line(f"! your messages are not kept: {sanitise(self._history.fault)}", "yellow")
