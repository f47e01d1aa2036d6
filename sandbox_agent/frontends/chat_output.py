"""The terminal of a chat as the printer sees it: whole lines go above the input line and stay there; a line that is
still growing is `tail`, for the input line to show it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TextIO

DRAWN_CHARS = 2000
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


class Above(io.TextIOBase):
    """A text file in front of the terminal's own.

    While `schedule` is set, what is written waits until `pass_on`; without it, it goes to the terminal at once.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._waiting: list[str] = []
        self.tail = ""
        self.gone = False
        """Whether the terminal was hung up: nothing can be shown any more."""
        self.schedule: Callable[[], None] | None = None
        """Called when something waits, or `tail` has changed."""

    def isatty(self) -> bool:
        """As the terminal says."""
        return self._terminal.isatty()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Take a text; never waits."""
        if self.schedule is None:
            self._put(text)
            return len(text)
        whole, newline, self.tail = (self.tail + text).rpartition("\n")
        if newline:
            self._waiting.append(whole + newline)
        self.schedule()
        return len(text)

    def flush(self) -> None:
        """What goes to the terminal at once is flushed with each write."""

    @property
    def growing(self) -> str:
        """The growing line as it is drawn anew with each piece: of a very long one the end, uncoloured."""
        return self.tail if len(self.tail) <= DRAWN_CHARS else _COLOURS.sub("", self.tail)[-DRAWN_CHARS:]

    @property
    def waits(self) -> bool:
        """Whether whole lines wait."""
        return bool(self._waiting)

    def pass_on(self) -> None:
        """Write the whole lines that wait; the cursor must be where they are to go."""
        text, self._waiting = "".join(self._waiting), []
        self._put(text)

    def end(self) -> None:
        """No input line any more: everything to the terminal, the growing line as well."""
        self.schedule = None
        self.pass_on()
        text, self.tail = self.tail, ""
        self._put(text)

    def _put(self, text: str) -> None:
        if not text or self.gone:
            return
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except OSError:
            self.gone = True
