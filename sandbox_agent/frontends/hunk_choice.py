"""Choosing hunk by hunk at the terminal, with the letters of `git add -p`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sandbox_agent.frontends import diffs
from sandbox_agent.frontends.sanitise import exact, sanitise
from sandbox_agent.frontends.terminal import Asker
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.hunks import Hunk, Span, hunks_of, split

HELP = """\
y  apply this hunk
n  leave it
a  apply this hunk and all later ones of this file
d  leave this hunk and all later ones of this file
{split}q  leave this hunk and everything after it
?  this help"""
SPLIT_HELP = "s  split it into smaller hunks\n"


class ByHunk(NamedTuple):
    """What was chosen: `paths` go whole, of `hunks` the given lines."""

    paths: tuple[str, ...]
    hunks: dict[str, tuple[Span, ...]]


async def choose_hunks(terminal: Asker, changes: Sequence[JsonObject]) -> ByHunk:
    """Ask about each hunk of each change in turn; a change without hunks (binary, deleted, a link) is one question.

    End of input is "q": what was chosen until then stays chosen.
    """
    chosen = ByHunk((), {})
    for change in changes:
        path = str(change["path"])
        hunks = _hunks(change)
        taken, going_on = await _file(terminal, change, hunks)
        if taken and len(taken) == _parts(hunks, taken):
            chosen = chosen._replace(paths=(*chosen.paths, path))
        elif taken:
            chosen.hunks[path] = tuple(hunk.span for hunk in taken)
        if not going_on:
            break
    return chosen


def _hunks(change: JsonObject) -> list[Hunk]:
    """The hunks that can be chosen apart: only a text that was there before and still is has them."""
    diff = change.get("diff")
    if change.get("kind") == "modified" and change.get("entry") == "file" and isinstance(diff, str):
        return list(hunks_of(diff))
    return []


def _parts(hunks: Sequence[Hunk], taken: Sequence[Hunk]) -> int:
    """How many of the pieces in `taken` it takes for the whole; more than there are when something is missing."""
    if not hunks:
        return 1
    rows = sum(_changed(hunk) for hunk in hunks)
    return len(taken) if sum(_changed(hunk) for hunk in taken) == rows else len(taken) + 1


def _changed(hunk: Hunk) -> int:
    return sum(row[:1] in ("+", "-") for row in hunk.rows)


async def _file(terminal: Asker, change: JsonObject, hunks: Sequence[Hunk]) -> tuple[list[Hunk], bool]:
    """The hunks taken of one change (a stand-in for a change without any), and whether to go on with the next."""
    path, printer = exact(str(change["path"])).text, terminal.printer
    printer.gap()
    printer.line(f"{path}  {sanitise(str(change.get('kind')))}", style="bold")
    for reason in (change.get("danger"), change.get("note")):
        if reason:
            printer.line(f"! {sanitise(str(reason))}", style="red")
    waiting = list(hunks) or [Hunk(Span(0, 0, 0, 0), ())]
    taken: list[Hunk] = []
    count, number, shown = len(waiting), 1, False
    while waiting:
        hunk = waiting[0]
        if not shown:
            _show(terminal, change, hunk)
            shown = True
        parts = split(hunk) if hunks else ()
        letters = "y,n,q,a,d" + (",s" if len(parts) > 1 else "") + ",?"
        what = "this hunk of" if hunks else "this change of"
        answer = await terminal.ask(f"({number}/{count}) Apply {what} {path}? [{letters}] > ")
        match (answer or "q").lower():
            case "y":
                taken.append(waiting.pop(0))
            case "n":
                waiting.pop(0)
            case "a":
                return taken + waiting, True
            case "d":
                return taken, True
            case "q":
                return taken, False
            case "s" if len(parts) > 1:
                printer.line(f"Split into {len(parts)} hunks.")
                waiting[0:1] = parts
                count += len(parts) - 1
                shown = False
                continue
            case _:
                printer.line(HELP.format(split=SPLIT_HELP if len(parts) > 1 else ""))
                continue
        number += 1
        shown = False
    return taken, True


def _show(terminal: Asker, change: JsonObject, hunk: Hunk) -> None:
    if hunk.rows:
        terminal.printer.line(diffs.render(hunk.text))
    elif isinstance(change.get("diff"), str) and change["diff"]:
        terminal.printer.line(diffs.render(change["diff"]))
