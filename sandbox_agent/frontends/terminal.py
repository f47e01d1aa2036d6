"""A person at a terminal: questions go to the printer, answers are read as lines from a terminal descriptor.

Only a terminal is ever read. With none there is nobody to ask, and the caller must take the strict answer.
"""

from __future__ import annotations

import os
import sys
import termios
from typing import Protocol

import anyio

from sandbox_agent.frontends.printer import Printer


class Asker(Protocol):
    """Whoever puts questions to the person, one at a time."""

    @property
    def printer(self) -> Printer:
        """Where what belongs to a question is shown before it."""
        ...

    async def attention(self) -> None:
        """Wait until what the person types next can be an answer."""
        ...

    async def ask(self, question: str) -> str | None:
        """Show the (sanitised) question and return the answer without surrounding blanks; None at end of input."""
        ...


def open_terminal(*, stdin_is_task: bool = False) -> int | None:
    """A descriptor to read a person's answers from, or None when nobody is there.

    That is standard input where it is a terminal. When the task came through it, the controlling terminal, provided
    this process may read it: one in the background would be stopped.
    """
    if not stdin_is_task:
        return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.tcgetpgrp(fd) == os.getpgrp():
        return fd
    os.close(fd)
    return None


class Terminal:
    """An `Asker` of one line. The terminal's own line editing is used: no raw mode that a crash could leave behind."""

    def __init__(self, printer: Printer, fd: int) -> None:
        self.printer = printer
        self._fd = fd
        self._pending = b""

    async def attention(self) -> None:
        """See `Asker.attention`: there is nothing else to type here, and `ask` throws away what was."""

    async def ask(self, question: str) -> str | None:
        """Show the (sanitised) question and return the answer without surrounding blanks; None at end of input.

        What was typed before the question was on the screen is thrown away: it cannot be an answer to it.
        """
        self._pending = b""
        try:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        except termios.error:
            return None  # the terminal was hung up
        self.printer.stream(question)
        line = await self._read_line()
        if line is None:
            self.printer.break_line()
            return None
        self.printer.line_open = False  # the terminal echoed the person's own newline
        return line.decode("utf-8", "replace").strip()

    async def _read_line(self) -> bytes | None:
        """Waits without a thread, so that cancelling (Ctrl-C, a limit) ends the question at once."""
        while b"\n" not in self._pending:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, 4096)
            except OSError:
                return None  # the terminal was hung up
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line
