"""The review at the end: what the run changed in its copy, what of it can do harm later, and what may go to the folder.

Works on the entries of `ReviewReady` (`workspaces.base.Change.as_json`), so a kept session is reviewed the same way.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.text import Text

from sandbox_agent.frontends import diffs
from sandbox_agent.frontends.hunk_choice import choose_hunks
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import exact, sanitise
from sandbox_agent.frontends.terminal import Asker
from sandbox_agent.frontends.words import count, size
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.hunks import Span

FILE_LINES = 120
"""Diff lines shown of one file before the person asks for the rest."""

_MARKS = {"added": ("A", "green"), "deleted": ("D", "red"), "modified": ("M", "yellow")}
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


class Choice(NamedTuple):
    """What to apply: `paths` of the changes, or None for all of them; and of the paths in `hunks` only those lines."""

    paths: tuple[str, ...] | None
    hunks: Mapping[str, tuple[Span, ...]] = MappingProxyType({})

    @property
    def nothing(self) -> bool:
        return self.paths == () and not self.hunks


NOTHING = Choice(())
QUESTION = "Apply to your folder? [a]ll, [s]ome, by [h]unk, [n]one, d N = whole diff of N > "


def show(
    printer: Printer,
    changes: Sequence[JsonObject],
    *,
    max_lines: int | None = FILE_LINES,
    drifted: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """The list of changed paths, then each diff, then once more what can do harm: it must not scroll away.

    `drifted` is what others changed in the folder meanwhile, path to kind: where both did, the list says so.
    """
    printer.gap()
    printer.line(f"{count(len(changes), 'path')} changed:", style="bold")
    for number, change in enumerate(changes, 1):
        line = _entry(number, change)
        if change["path"] in drifted:
            line.append(f"  ! changed in your folder too ({sanitise(drifted[str(change['path'])])})", style="yellow")
        printer.line(line)
    for change in changes:
        printer.gap()
        _show_one(printer, change, max_lines=max_lines)
    show_dangers(printer, changes, "Look at these before they reach your folder:")


def show_dangers(printer: Printer, changes: Sequence[JsonObject], title: str) -> None:
    """The changes that can do harm later, a line each with the reasons; nothing when there are none."""
    dangers = [change for change in changes if change.get("danger")]
    if dangers:
        printer.gap()
        printer.line(title, style="bold red")
        for change in dangers:
            printer.line(f"  ! {_path(change)}: {sanitise(str(change['danger']))}", style="red")


async def choose(terminal: Asker, changes: Sequence[JsonObject]) -> Choice:
    """Ask which of the shown changes go to the folder. End of input is nothing."""
    printer = terminal.printer
    printer.gap()
    while True:
        typed = await terminal.ask(QUESTION)
        if typed is None:
            return NOTHING
        word, _, rest = typed.partition(" ")
        match word.lower():
            case "a" | "all" if not rest:
                return Choice(None)
            case "n" | "none" | "no" if not rest:
                return NOTHING
            case "s" | "some":
                words = rest or await terminal.ask("Which? Numbers (1 3-5) or patterns (src/*.py) > ") or ""
                picked = _picked(printer, changes, words)
                if picked:
                    return Choice(picked)
            case "h" | "hunks":
                wanted = _picked(printer, changes, rest) if rest else [str(change["path"]) for change in changes]
                if wanted:
                    return Choice(*await choose_hunks(terminal, [_by_path(changes, path) for path in wanted]))
            case "d" | "diff":
                for path in select(changes, rest)[0]:
                    _show_one(printer, _by_path(changes, path), max_lines=None)
            case _:
                printer.line("Answer a, s, h, n or d.", style="yellow")


def select(changes: Sequence[JsonObject], wanted: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths that numbers, ranges and patterns mean, in the order of the changes, and the words that mean none."""
    paths = [str(change["path"]) for change in changes]
    chosen: set[str] = set()
    unknown: list[str] = []
    for word in wanted.replace(",", " ").split():
        spans = _RANGE.match(word)
        hits = matching(changes, word)
        if spans and not hits:
            first, last = int(spans[1]), int(spans[2] or spans[1])
            hits = set(paths[first - 1 : last]) if first >= 1 and last <= len(paths) else set()
        if not hits:
            unknown.append(word)
        chosen |= hits
    return tuple(path for path in paths if path in chosen), tuple(unknown)


def matching(changes: Sequence[JsonObject], word: str) -> set[str]:
    """The paths a path, a folder or a pattern means; a path of that very name is meant alone.

    A link or special file is meant by its own path only: what it leads to, or does, is not in the diff.
    """
    hits = covered(changes, word)
    return hits if word in hits else hits - {str(change["path"]) for change in changes if _goes_by_name(change)}


def named_only_left_out(changes: Sequence[JsonObject], words: Sequence[str]) -> tuple[str, ...]:
    """The links and special files that folders and patterns cover, and that no word names."""
    hits = {path for word in words for path in covered(changes, word) if path not in words}
    return tuple(str(change["path"]) for change in changes if _goes_by_name(change) and change["path"] in hits)


def _goes_by_name(change: JsonObject) -> bool:
    return change.get("entry") in ("link", "other") and change.get("kind") != "deleted"


def covered(changes: Sequence[JsonObject], word: str) -> set[str]:
    """All paths that a path, a folder or a pattern covers, links and special files too."""
    paths = [str(change["path"]) for change in changes]
    if word in paths:
        return {word}
    folder = word.rstrip("/") + "/"
    return {path for path in paths if fnmatch.fnmatchcase(path, word) or path.startswith(folder)}


def _picked(printer: Printer, changes: Sequence[JsonObject], wanted: str) -> tuple[str, ...]:
    """What was chosen, or nothing when a word means no change: applying half of what was meant would surprise."""
    for path in named_only_left_out(changes, wanted.replace(",", " ").split()):
        what = "link" if _by_path(changes, path).get("entry") == "link" else "special file"
        printer.line(f"The {what} {exact(path).text} goes only when its own path is named.", style="yellow")
    picked, unknown = select(changes, wanted)
    if unknown:
        printer.line(f"No change fits {', '.join(sanitise(word) for word in unknown)}.", style="yellow")
        return ()
    for path in picked:
        printer.line(f"  {exact(path).text}")
    return picked


def _by_path(changes: Sequence[JsonObject], path: str) -> JsonObject:
    return next(change for change in changes if change["path"] == path)


def _path(change: JsonObject) -> str:
    return exact(str(change["path"])).text


def _entry(number: int, change: JsonObject) -> Text:
    kind = str(change.get("kind"))
    mark, style = _MARKS.get(kind, ("*", "yellow"))
    line = Text.assemble(f"  {number:>3}  ", (mark, style), f" {_path(change)}")
    if isinstance(change.get("diff"), str):
        added, removed = diffs.counts(change["diff"])
        line.append(f"  +{added} -{removed}", style="dim")
    if kind not in _MARKS and kind != "other":
        line.append(f"  {sanitise(kind)}", style="dim")
    if change.get("entry") not in (None, "file", "other", kind):  # of what is "other", the note says what it is
        line.append(f"  {sanitise(str(change['entry']))}", style="dim")
    if change.get("mode_before") != change.get("mode_after") and change.get("mode_before") and change.get("mode_after"):
        line.append(f"  mode {change['mode_before']} -> {change['mode_after']}", style="dim")
    told = [sanitise(str(change["note"]))] if change.get("note") else []
    told += _sizes(change) if not isinstance(change.get("diff"), str) else []
    if told:
        line.append(f"  ({', '.join(told)})", style="dim")
    if change.get("danger"):
        line.append(f"  ! {sanitise(str(change['danger']))}", style="red")
    return line


def _sizes(change: JsonObject) -> list[str]:
    """How large a file is that no diff is shown of, and was."""
    before, after = (change.get(name) for name in ("size_before", "size_after"))
    if change.get("entry") != "file" or (before is None and after is None):
        return []
    if before is None or after is None:
        return [size(int(after))] if after is not None else [f"was {size(int(str(before)))}"]
    return [f"{size(int(before))} -> {size(int(after))}"]


def _show_one(printer: Printer, change: JsonObject, *, max_lines: int | None) -> None:
    diff = change.get("diff")
    if isinstance(diff, str) and diff:
        printer.line(diffs.render(diff, max_lines=max_lines))
