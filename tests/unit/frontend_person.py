"""A person at a real pseudo-terminal who types the next answer as soon as a question is on the screen."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.terminal import Terminal

END_OF_INPUT = "\x04"


class Screen(io.StringIO):
    """What is shown; a text that ends with "> " is a question and gets the next of the answers."""

    def __init__(self, keyboard: int, answers: list[str]) -> None:
        super().__init__()
        self._keyboard = keyboard
        self.answers = answers

    def write(self, shown: str) -> int:
        written = super().write(shown)
        if shown.endswith("> ") and self.answers:
            answer = self.answers.pop(0)
            os.write(self._keyboard, (answer if answer == END_OF_INPUT else f"{answer}\n").encode())
        return written


@contextmanager
def person(*answers: str, typed_before: str = "", width: int = 60) -> Iterator[tuple[Terminal, Screen]]:
    """A terminal where these answers will be typed; `typed_before` is in its buffer already."""
    keyboard, tty = os.openpty()
    try:
        os.write(keyboard, typed_before.encode())
        screen = Screen(keyboard, list(answers))
        console = Console(file=screen, color_system=None, width=width, markup=False, highlight=False)
        yield Terminal(Printer(console), tty), screen
    finally:
        os.close(tty)
        os.close(keyboard)
