"""Which key does what in a chat. All others are prompt_toolkit's own, as in Emacs and most shells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HELP = """\
Enter            send; while the agent works, it gets the message before its next step
Alt-Enter, \\     a further line (a backslash at the end of the line, then Enter)
Esc, Ctrl-C      stop what is under way; messages that wait are delivered at once
Ctrl-C Ctrl-C    leave
Ctrl-D           leave, at an empty line
Tab              complete a command, or a path of the workspace
Up, Down         earlier messages
Ctrl-Z           suspend"""


class Person(Protocol):
    """What the keys are for. None of it waits."""

    def submit(self, text: str) -> None:
        """A message or command was entered; never blank."""
        ...

    def interrupt(self) -> bool:
        """Stop what is under way; False where nothing is."""
        ...

    def leave(self, *, interrupted: bool = False) -> None:
        """Come to the end: by Ctrl-D, the end of input, or (`interrupted`) a second Ctrl-C."""
        ...

    def status(self) -> str:
        """One sanitised line that says how things are."""
        ...

    def notes(self) -> Sequence[str]:
        """Sanitised lines to be seen until they are over: messages that wait, the step of the todo list."""
        ...


class Line(Protocol):
    """What the keys act on."""

    def enter(self) -> None: ...
    def newline(self) -> None: ...
    def complete(self) -> None: ...
    def escape(self) -> None: ...
    def ctrl_c(self) -> None: ...
    def ctrl_d(self) -> None: ...


def bindings(line: Line) -> KeyBindings:
    """The keys, bound to this line."""
    keys = KeyBindings()
    acts = [
        (("enter",), line.enter),
        (("escape", "enter"), line.newline),
        (("tab",), line.complete),
        (("escape",), line.escape),
        (("c-c",), line.ctrl_c),
        (("<sigint>",), line.ctrl_c),
        (("c-d",), line.ctrl_d),
    ]
    for sequence, act in acts:
        keys.add(*sequence)(lambda event, act=act: act())

    @keys.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys
