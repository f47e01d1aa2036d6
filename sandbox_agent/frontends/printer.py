"""Append-only output: whole lines and streamed pieces on one rich console.

Nothing here moves the cursor back or draws over what was shown, so copy and paste works, a resized window re-wraps by
itself, and a log of the terminal reads like the terminal did. Strings must be sanitised by the caller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console
from rich.text import Text


def make_console(file: TextIO, env: Mapping[str, str] | None = None) -> Console:
    """A console without markup, emoji codes or highlighting.

    Colours only on a terminal, and never with NO_COLOR set (to anything but "") or TERM=dumb or empty.
    """
    env = os.environ if env is None else env
    coloured = file.isatty() and not env.get("NO_COLOR") and env.get("TERM", "dumb") not in ("dumb", "")
    return Console(
        file=file,
        # An explicit None means no escape sequence at all; rich's own no_color keeps bold and dim.
        color_system="auto" if coloured else None,
        force_terminal=coloured,
        no_color=False,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
        _environ=env,
    )


class Printer:
    """A console that knows whether the last thing shown ended its line (`line_open` is False then)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.line_open = False
        self._blank = True

    def line(self, text: Text | str = "", style: str | None = None) -> None:
        """One whole line (or several, if the text has newlines), on a line of its own."""
        self.break_line()
        shown = Text(text) if isinstance(text, str) else text
        self.console.print(shown, style=style, soft_wrap=True)
        self._blank = not shown.plain.strip()

    def stream(self, text: str, style: str | None = None) -> None:
        """A piece of a text that goes on."""
        if text:
            self.console.print(Text(text), style=style, end="", soft_wrap=True)
            self.console.file.flush()
            self.line_open = not text.endswith("\n")
            self._blank = text.endswith("\n\n")

    def break_line(self) -> None:
        """End a streamed line, if one is open."""
        if self.line_open:
            self.console.print()
            self.line_open = False
            self._blank = False

    def gap(self) -> None:
        """One blank line, unless there is one already."""
        self.break_line()
        if not self._blank:
            self.console.print()
            self._blank = True
