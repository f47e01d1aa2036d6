"""The terminal of a chat: what is printed goes above, the person writes below, at any time.

Nothing but keys comes from the terminal: it is never asked for the place of its cursor or anything else. A question
takes over the input line only once nothing has been typed for a moment, so that no line that was meant for the agent is
taken for its answer; what had been written comes back afterwards.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, TextIO, cast

import anyio
from anyio.abc import TaskStatus
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import Input
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from sandbox_agent.frontends.chat_history import ChatHistory
from sandbox_agent.frontends.chat_keys import Person, bindings
from sandbox_agent.frontends.chat_line import make_layout
from sandbox_agent.frontends.chat_output import Above
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.terminal import Terminal


class Quiet(NamedTuple):
    """How long nothing must have been typed before a question takes over the input line. With a message half written
    it is longer: people stop to think."""

    usual_s: float = 0.5
    draft_s: float = 2.0


QUIET = Quiet()

ESCAPE_S = 0.1
"""An Esc that nothing follows for so long is the key itself, and not the beginning of another one."""

AGAIN_S = 2.0
"""So long a second Ctrl-C leaves."""

REFRESH_S = 1.0

STYLE = Style([("status", "dim"), ("prompt", "bold")])


class ChatScreen:
    """The input line, and the printer that writes above it. An `Asker` for questions, also before and after `run`."""

    def __init__(
        self,
        terminal: TextIO,
        fd: int,
        *,
        history: ChatHistory,
        quiet: Quiet = QUIET,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """Nothing is drawn yet.

        Args:
            terminal: what is printed goes there.
            fd: the person's answers come from there while the input line is not drawn.
            history: earlier messages.
            quiet: see there.
            input, output: where keys come from and the input line is drawn; None is the terminal of this process.
        """
        self.above = Above(terminal)
        self.printer = Printer(make_console(cast(TextIO, self.above)))
        self._plain = Terminal(self.printer, fd)
        self._history = history
        self._input = input
        self._output = output
        self._app: Application[None] | None = None
        self._person: Person | None = None
        self._message = Buffer()
        self._answer = Buffer(multiline=False)
        self._question: str | None = None
        self._answered = anyio.Event()
        self._quiet = quiet
        self._typed_s = 0.0
        self._coming = 0
        self._given: str | None = None
        self._ctrl_c_until_s = 0.0
        self._printing = False

    async def run(
        self, person: Person, completer: Completer, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Draw the input line and read keys until `close`, whatever is being cancelled; then all is as it was."""
        self._person = person
        self._message = Buffer(
            multiline=True,
            history=self._history,
            completer=completer,
            complete_while_typing=Condition(lambda: self._message.text.startswith("/")),
        )
        self._app = app = Application[None](
            layout=make_layout(
                message=self._message,
                answer=self._answer,
                tail=lambda: self.above.growing,
                above=person.notes,
                status=self._status,
                question=lambda: self._question,
            ),
            key_bindings=bindings(self),
            style=STYLE,
            erase_when_done=True,
            refresh_interval=REFRESH_S,
            color_depth=None if self.printer.console.color_system else ColorDepth.DEPTH_1_BIT,
            input=self._input,
            output=self._output or _output(),
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_S
        app.key_processor.before_key_press += self._key_pressed
        self.above.schedule = self._something_to_print
        try:
            with anyio.CancelScope(shield=True):
                await app.run_async(pre_run=task_status.started, handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal was hung up
            person.leave()
        finally:
            self._app = None
            self.above.end()
            self._answered.set()

    def close(self) -> None:
        """Take the input line away; what is half written is lost."""
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._message.reset()
            self._app.exit()

    def refresh(self) -> None:
        """Draw the input line again: a note or the status has changed."""
        if self._app is not None:
            self._app.invalidate()

    async def attention(self) -> None:
        """Wait until the person is not in the middle of writing: from then on a line they enter is an answer."""
        asked_s = anyio.current_time()
        self._coming += 1
        try:
            while self._app is not None:
                quiet_s = self._quiet.draft_s if self._message.text else self._quiet.usual_s
                left_s = max(self._typed_s, asked_s) + quiet_s - anyio.current_time()
                if left_s <= 0:
                    return
                await anyio.sleep(left_s)
        finally:
            self._coming -= 1

    async def ask(self, question: str) -> str | None:
        """See `Asker.ask`. It takes over the input line; what was written there comes back afterwards."""
        app = self._app
        if app is None:
            return await self._plain.ask(question)
        self.printer.break_line()
        self._answer.reset()
        self._question, self._answered, self._given = question, anyio.Event(), None
        app.layout.focus(self._answer)
        app.invalidate()
        try:
            await self._answered.wait()
        finally:
            self._question = None
            if self._app is not None:
                app.layout.focus(self._message)
                app.invalidate()
        given = self._given
        self.printer.line(question + sanitise(given or "", tabs=True))
        return None if given is None else given.strip()

    def enter(self) -> None:
        """The Enter key: an answer, a further line behind a backslash, or a message."""
        message = self._message
        if self._question is not None:
            self._give(self._answer.text)
        elif message.complete_state is not None and message.complete_state.current_completion is not None:
            message.complete_state = None  # it chose the completion
        elif message.document.text_before_cursor.endswith("\\"):
            message.delete_before_cursor()
            message.newline(copy_margin=False)
        elif not message.text.strip() or (self._coming and len(message.text.strip()) == 1):
            message.reset()  # a single letter while a question comes up was for it, or for one that is gone
        else:
            text = message.text.rstrip()
            message.append_to_history()
            message.reset()
            self._handed.submit(text)

    def newline(self) -> None:
        """A further line of the message."""
        if self._question is None:
            self._message.newline(copy_margin=False)

    def complete(self) -> None:
        """The Tab key: what can follow, or the next of what is offered."""
        if self._question is not None:
            return
        if self._message.complete_state is not None:
            self._message.complete_next()
        else:
            self._message.start_completion(insert_common_part=True)

    def escape(self) -> None:
        """The Esc key: no completion after all, or stop what is under way."""
        if self._question is None and self._message.complete_state is not None:
            self._message.cancel_completion()
        else:
            self._interrupt()

    def ctrl_c(self) -> None:
        """Stop what is under way, else forget what is written; the second one within a moment leaves."""
        now_s = anyio.current_time()
        if now_s < self._ctrl_c_until_s:
            self._handed.leave(interrupted=True)
        elif not self._interrupt() and self._message.text:
            self._message.reset()
            return
        self._ctrl_c_until_s = now_s + AGAIN_S
        self.refresh()

    def ctrl_d(self) -> None:
        """The end of input, at an empty line; elsewhere it removes a character."""
        buffer = self._message if self._question is None else self._answer
        if buffer.text:
            buffer.delete()
        elif self._question is not None:
            self._give(None)
        else:
            self._handed.leave()

    def _interrupt(self) -> bool:
        stopped = self._handed.interrupt()
        if not stopped and self._question is not None:
            self._give(None)
            return True
        return stopped

    def _give(self, answer: str | None) -> None:
        self._given = answer
        self._answered.set()

    @property
    def _handed(self) -> Person:
        assert self._person is not None  # `run` sets it before any key is read
        return self._person

    def _status(self) -> str:
        if anyio.current_time() < self._ctrl_c_until_s:
            return "Ctrl-C once more leaves"
        if self._coming:
            return "a question comes up: stop typing for a moment to answer it"
        return self._handed.status()

    def _key_pressed(self, _: object) -> None:
        self._typed_s = anyio.current_time()

    def _something_to_print(self) -> None:
        if self._app is not None and self._app.loop is not None and not self._printing:
            self._printing = True
            self._app.loop.call_soon(self._print)

    def _print(self) -> None:
        """Write what waits where the input line is, and that anew below; at once, so that no key falls in between."""
        self._printing = False
        app = self._app
        if app is None:
            return
        if self.above.waits:
            app.renderer.erase(leave_alternate_screen=False)
            self.above.pass_on()
        app.invalidate()


def _output() -> Output:
    """The terminal of this process, never asked for anything: an answer that comes late would be read as keys."""
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output
