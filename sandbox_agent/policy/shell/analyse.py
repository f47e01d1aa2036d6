"""`analyse`: one command text to everything a judge needs to know, computed once per text. No policy in here.

All who ask about one call must get one answer, or its files would be looked up by one reading and judged by another. So
even a reading that failed for want of time is kept, until `look_again` is asked before the next call.
"""

from __future__ import annotations

import functools
import posixpath
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sandbox_agent.policy.paths import TOOLS_HOME
from sandbox_agent.policy.shell.collect import collect
from sandbox_agent.policy.shell.model import ANY_WORD, Concern, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.parser import UnreadableError, hidden_character
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.types import WORKSPACE_MOUNT, PathAccess

MAX_PATH_BYTES = 4096
MAX_FILES = 2000
"""That are looked up in the container; each folder that a `cd` may lead to counts."""
MAX_FOLDERS = 64
MAX_NAME_BYTES = 255
"""Of one part of a path: Linux has no longer ones."""
MAX_KEPT = 512
"""Texts whose analysis is kept: more than an answer of a model has calls."""
PASSING_S = 5.0
"""How long a reading that failed for want of time holds: one call is looked at several times in a row."""
STARVED_TRIES = 10
NULL_DEVICE = "/dev/null"
_NETWORK_DEVICES = ("/dev/tcp/", "/dev/udp/")


@dataclass(frozen=True, slots=True)
class ShellAnalysis:
    """A command text taken apart.

    `problem` says why it could not be read (it is then never allowed, and nothing else is filled). `commands` are all
    simple commands at any depth, with those that wrappers run. `guesses` may be run too, for deny and ask rules.
    `only_reads` is True if every part is on the read-only list with static words and writes nothing; `read_only` if,
    besides, none changes the folder, so that it may run beside other calls. `passing`: the problem was the
    machine's and not the text's; `starved`: for certain, so that it is worth to read the text again at once.
    """

    command: str
    problem: str | None = None
    commands: tuple[SimpleCommand, ...] = ()
    guesses: tuple[SimpleCommand, ...] = ()
    concerns: tuple[Concern, ...] = ()
    only_reads: bool = False
    read_only: bool = False
    passing: bool = False
    starved: bool = False

    def accesses(self, cwd: str = WORKSPACE_MOUNT) -> tuple[PathAccess, ...]:
        """The files the command plainly names, absolute in the container, for the gate to resolve. Without repeats;
        a `cd` in the command counts as another folder they may be relative to."""
        folders = self.folders(cwd)
        found: dict[PathAccess, None] = {}
        for command in self.commands:
            for word, write in operands(command):
                if word.static and is_path(word.text):
                    found |= {PathAccess(absolute(folder, word.text), write): None for folder in folders}
        return tuple(found)

    def folders(self, cwd: str) -> tuple[str, ...]:
        """The folders that relative paths may be relative to: `cwd`, and where each `cd` may lead, as far as that is
        followed."""
        folders = {cwd: None}
        for target in _moves(self.commands):
            folders |= {absolute(folder, target): None for folder in tuple(folders)}
            if len(folders) > MAX_FOLDERS:
                break
        return tuple(folders)[:MAX_FOLDERS]


def _moves(commands: Iterable[SimpleCommand]) -> Iterator[str]:
    """Where each `cd` goes, as written; one that is only known at run time is left out."""
    for command in commands:
        if command.program not in ("cd", "pushd"):
            continue
        words = [word for word in command.words[1:] if not word.text.startswith("-")]
        if not words:
            yield TOOLS_HOME
        elif words[-1].static and is_path(words[-1].text):
            yield words[-1].text


def operands(command: SimpleCommand) -> Iterator[tuple[Word, bool]]:
    """Every word that names a file, with True if it is written."""
    for word in command.reads:
        yield word, False
    for word in command.searches_below:
        yield word, False
    for word in command.writes:
        yield word, True
    for redirect in command.redirects:
        if redirect.reads:
            yield redirect.target, False
        if redirect.writes and redirect.target.text != NULL_DEVICE:
            yield redirect.target, True


def is_path(text: str) -> bool:
    """False for text that no path can be, or that cannot be sent: empty, too long, or bytes that are no UTF-8."""
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return 0 < len(raw) <= MAX_PATH_BYTES and all(len(name) <= MAX_NAME_BYTES for name in raw.split(b"/"))


def absolute(folder: str, path: str) -> str:
    """The path as seen from the folder, normalised by spelling."""
    joined = posixpath.normpath(posixpath.join(folder, path))
    return joined[1:] if joined.startswith("//") else joined


@dataclass(slots=True)
class _Kept:
    """The analysis of a text, and when it was made."""

    analysis: ShellAnalysis | None = None
    made_s: float = 0.0


@functools.lru_cache(maxsize=MAX_KEPT)
def _kept(command: str) -> _Kept:
    return _Kept()


def analyse(command: str) -> ShellAnalysis:
    """Take a command text apart. Never raises on any text: what cannot be read has a `problem`."""
    kept = _kept(command)
    found = kept.analysis
    if found is None:
        found = kept.analysis = _analysed(command)
        kept.made_s = time.monotonic()
    return found


def look_again(command: str, *, after_s: float = PASSING_S) -> ShellAnalysis:
    """The same for a text that may have been seen before: a problem that was the machine's is not held against it.
    Where the machine had no time for it at all it is read again a few times, so that a decision hangs on the text."""
    kept = _kept(command)
    found = kept.analysis
    if found is not None and found.passing and time.monotonic() - kept.made_s >= after_s:
        kept.analysis = None
    found = analyse(command)
    for _ in range(STARVED_TRIES):
        if not found.starved:
            break
        kept.analysis = None
        found = analyse(command)
    return found


def forget() -> None:
    """Drop all that is kept."""
    _kept.cache_clear()


def _analysed(command: str) -> ShellAnalysis:
    try:
        found = collect(command)
    except UnreadableError as exc:
        return ShellAnalysis(command, problem=str(exc), passing=exc.passing, starved=exc.starved)
    commands, concerns = found.commands, found.concerns
    problem, more = _beyond_caps(commands)
    if problem is not None:
        return ShellAnalysis(command, problem=problem)
    concerns = (*concerns, *more)
    hidden = hidden_character(command)
    if hidden is not None:
        concerns = (*concerns, Concern("the command", f"it holds a character that is not shown as such: {hidden}"))
    plain = not concerns and any(part.words for part in commands)
    only_reads = plain and all(part_only_reads(part) for part in commands)
    read_only = only_reads and not any(changes_folder(part) for part in commands)
    return ShellAnalysis(command, None, commands, found.guesses, concerns, only_reads, read_only)


def _beyond_caps(commands: tuple[SimpleCommand, ...]) -> tuple[str | None, list[Concern]]:
    """What is wrong with the files named: a problem, or concerns."""
    folders = ShellAnalysis("", commands=commands).folders(WORKSPACE_MOUNT)
    named = {word.text for command in commands for word, _ in operands(command)}
    if len(named) * len(folders) > MAX_FILES:
        return f"it names more than {MAX_FILES} files", []
    if len(folders) == MAX_FOLDERS:
        return None, [Concern("cd", "it changes the folder too often to be followed")]
    return None, []


def blockers(command: SimpleCommand, *, listed: bool = False) -> list[str]:
    """What keeps a command from being allowed by any rule: words that are not static, and what rides along.

    With `listed` the command is judged by the read-only list, which knows what its options do.
    """
    found = []
    if command.assigns:
        found.append("it sets variables")
    if command.background:
        found.append("it runs in the background and outlives the call")
    for word in command.words:
        known = listed and (word.names_option or _harmless_whatever_it_is(command, word))
        if word.kind is WordKind.DYNAMIC and not known:
            found.append(f"{'a word' if word.text == ANY_WORD else word.text} is only known at run time")
        elif starts_anyhow(word) and not known:
            found.append(f"{word.text} can match a name that begins with a dash; write ./{word.text}")
    if command.words and command.words[0].kind is not WordKind.STATIC:
        found.append("which program runs is only known at run time")
    for redirect in command.redirects:
        target = redirect.target
        if redirect.descriptor.startswith("{"):
            found.append(f"{redirect.descriptor}{redirect.op} assigns a variable")
        elif redirect.is_text and redirect.text is not None and not redirect.text.static:
            found.append("its here-document is only known at run time")
        elif not redirect.copies_descriptor and not redirect.is_text and not target.static:
            found.append(f"the redirect {redirect.op} {target.text} is only known at run time")
        elif not redirect.is_text and not is_path(target.text):
            found.append(f"{redirect.op} opens a file whose name cannot be checked")
        elif not redirect.is_text and target.text.startswith(_NETWORK_DEVICES):
            found.append(f"{redirect.op} {target.text} opens a network connection")
    return found


def _harmless_whatever_it_is(command: SimpleCommand, word: Word) -> bool:
    """A name that comes at run time, for a program that takes any; a variable, for one that only prints its words."""
    if word.text == ANY_WORD or word.kind is WordKind.GLOB:
        return command.any_operands and not word.fixed_start.startswith("-")
    program = tables().programs.get(command.program)
    prints = program is not None and program.operands == "text" and program.style == "words" and not program.hazards
    return prints and word.variables_only


def starts_anyhow(word: Word) -> bool:
    """True for a file pattern that can match a name beginning with a dash, which is then read as an option."""
    in_folder = "/" in word.fixed_start and not word.fixed_start.startswith("-")
    return word.kind is WordKind.GLOB and not in_folder


def file_writes(command: SimpleCommand) -> list[Word]:
    """The targets of redirects that write files; the null device is none."""
    return [r.target for r in command.redirects if r.writes and r.target.text != NULL_DEVICE]


def part_only_reads(command: SimpleCommand) -> bool:
    """True if the list of commands that only read speaks for it, and nothing that is written rides along."""
    if blockers(command, listed=True) or file_writes(command) or command.writes:
        return False
    if not command.words or command.transparent:
        return not command.hazards
    return command.on_read_only_list


def changes_folder(command: SimpleCommand) -> bool:
    """True for `cd` and its kin."""
    program = tables().programs.get(command.program)
    return program is not None and program.changes_folder
