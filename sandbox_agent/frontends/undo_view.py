"""What an undo came to, for people."""

from __future__ import annotations

from sandbox_agent.engine.restoring import Reached
from sandbox_agent.frontends import words
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise


def show(printer: Printer, reached: Reached, *, rewound: bool) -> None:
    """Which step is back, and what of it is not; `rewound`: the conversation is, too."""
    what = f"{words.count(reached.changed, 'path')} changed back" if reached.changed else "nothing had to be changed"
    number = reached.target.number
    printer.line(f"The workspace is as it was after step {number}: {what} (now step {reached.step.number}).")
    for path in reached.restored.theirs:
        printer.line(f"Left as it is: {sanitise(path)} (changed in your folder before its content was kept)", "yellow")
    for path in reached.restored.impossible:
        printer.line(f"Not made again: {sanitise(path)} (a socket or device)", "yellow")
    for path, why in reached.restored.strangers.items():
        printer.line(f"Brought back, but not its owner: {sanitise(path)} ({sanitise(why)})", "yellow")
    if rewound:
        printer.line("The conversation is rewound to that step, too.")
