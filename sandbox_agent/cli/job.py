"""One task as the command line runs it: where it shows itself, and what it has come to."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig
from sandbox_agent.events import (
    CheckFinished,
    EgressDecided,
    Event,
    FolderDrifted,
    ModelRetrying,
    ModelSwitched,
    Notice,
)
from sandbox_agent.frontends import asides
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.drift import drift_line
from sandbox_agent.frontends.headless import Output, OutputFormat, make_output
from sandbox_agent.frontends.network import decision_line
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.frontends.terminal import Asker, Terminal, open_terminal

Apply = Literal["ask", "always", "never"]


class Screen(NamedTuple):
    """An output for programs, a view for people, or both; `terminal` is None where nobody can be asked."""

    output: Output | None
    view: ConsoleView | None
    printer: Printer
    terminal: Asker | None


@dataclass(slots=True)
class Job:
    """`task` is "" for a conversation that goes on as it stands. `reader_gone` is True once whoever read stdout or
    stderr went away; nothing is written any more then."""

    config: RunConfig
    task: str
    apply: Apply
    screen: Screen
    summary: RunSummary
    stop: Stop
    verbose: bool = False
    watch: Callable[[Event], None] | None = None
    reader_gone: bool = False

    def feed(self, event: Event) -> None:
        """One event to everybody."""
        self.summary.feed(event)
        if self.watch is not None:
            self.watch(event)
        if self.reader_gone:
            return
        try:
            if self.screen.output is not None:
                self.screen.output.feed(event)
            if self.screen.view is not None:
                self.screen.view.feed(event)
            elif isinstance(event, Notice) and event.level == "warning":
                self.screen.printer.line(f"! {sanitise(event.text)}")
            elif isinstance(event, CheckFinished | ModelRetrying | ModelSwitched):
                for text in asides.lines(event, verbose=False):
                    self.screen.printer.line(text)
            elif isinstance(event, EgressDecided):
                line = decision_line(event, verbose=False)
                if line is not None:
                    self.screen.printer.line(line)
            elif isinstance(event, FolderDrifted):
                self.screen.printer.line(f"! {drift_line(event.changed, event.changed_count)}")
        except OSError as exc:
            self._gone_or_raise(exc)
            self.stop.end()

    def say(self, text: str, style: str | None = None) -> None:
        """A line of ours for the person; on stderr where stdout belongs to a program."""
        if self.reader_gone:
            return
        try:
            self.screen.printer.line(sanitise(text), style)
        except OSError as exc:
            self._gone_or_raise(exc)

    def _gone_or_raise(self, exc: OSError) -> None:
        """Nobody reads any more: a pipe's reader left, or the terminal was closed. Raises whatever else it is."""
        if not isinstance(exc, BrokenPipeError) and exc.errno != errno.EIO:
            raise exc
        self.reader_gone = True


def make_screen(output: OutputFormat | None, *, stdin_is_task: bool, verbose: bool) -> Screen:
    """For programs (`output` given) or for people: on a terminal, or in a pipe, where stdout gets the answer alone."""
    to_pipe = not sys.stdout.isatty()
    printer = Printer(make_console(sys.stderr if output is not None or to_pipe else sys.stdout))
    if output is not None:
        view = ConsoleView(printer, verbose=True) if verbose else None
        return Screen(make_output(output, sys.stdout), view, printer, None)
    view = ConsoleView(printer, answer=sys.stdout if to_pipe else None, verbose=verbose)
    fd = open_terminal(stdin_is_task=stdin_is_task) if printer.console.file.isatty() else None
    return Screen(None, view, printer, Terminal(printer, fd) if fd is not None else None)
