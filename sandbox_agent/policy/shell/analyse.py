"""`analyse`: one command text to everything a judge needs to know, computed once per text. No policy in here."""

from __future__ import annotations

import functools
import posixpath
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sandbox_agent.policy.shell.facts import with_facts
from sandbox_agent.policy.shell.model import ANY_WORD, NEVER, Concern, Hazard, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.parser import UnreadableError, hidden_character, parse
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.policy.shell.walk import MAX_COMMANDS, Found, walk
from sandbox_agent.policy.shell.wrappers import unwrap
from sandbox_agent.types import WORKSPACE_MOUNT, PathAccess

MAX_SCRIPTS = 20
"""Shell texts inside one command (`bash -c`, `eval`, here-documents) that are parsed; each costs a process."""
MAX_WRAPPING = 10
MAX_WORDS = 5000
MAX_PATH_BYTES = 4096
NULL_DEVICE = "/dev/null"
_NETWORK_DEVICES = ("/dev/tcp/", "/dev/udp/")


@dataclass(frozen=True, slots=True)
class ShellAnalysis:
    """A command text taken apart.

    `problem` says why it could not be read (it is then never allowed, and nothing else is filled). `commands` are all
    simple commands at any depth, with those that wrappers run. `guesses` may be run too, for deny and ask rules.
    `only_reads` is True if every part is on the read-only list with static words and writes nothing; `read_only` if,
    besides, none changes the folder, so that it may run beside other calls.
    """

    command: str
    problem: str | None = None
    commands: tuple[SimpleCommand, ...] = ()
    guesses: tuple[SimpleCommand, ...] = ()
    concerns: tuple[Concern, ...] = ()
    only_reads: bool = False
    read_only: bool = False

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
        """The folders that relative paths may be relative to: `cwd`, and where each `cd` may lead."""
        folders = [cwd]
        for command in self.commands:
            if command.program not in ("cd", "pushd") or len(command.words) < 2 or not command.words[-1].static:
                continue
            target = command.words[-1].text
            folders += [absolute(folder, target) for folder in folders[:8]]
        return tuple(dict.fromkeys(folders))


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
        return 0 < len(text.encode("utf-8")) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False


def absolute(folder: str, path: str) -> str:
    """The path as seen from the folder, normalised by spelling."""
    joined = posixpath.normpath(posixpath.join(folder, path))
    return joined[1:] if joined.startswith("//") else joined


@functools.lru_cache(maxsize=64)
def analyse(command: str) -> ShellAnalysis:
    """Take a command text apart. Never raises on any text: what cannot be read has a `problem`."""
    try:
        commands, guesses, concerns = _collect(command)
    except UnreadableError as exc:
        return ShellAnalysis(command, problem=str(exc))
    hidden = hidden_character(command)
    if hidden is not None:
        concerns = (*concerns, Concern("the command", f"it holds a character that is not shown as such: {hidden}"))
    plain = not concerns and any(part.words for part in commands)
    only_reads = plain and all(part_only_reads(part) for part in commands)
    read_only = only_reads and not any(changes_folder(part) for part in commands)
    return ShellAnalysis(command, None, commands, guesses, concerns, only_reads, read_only)


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
        known = listed and (word.names_option or (word.text == ANY_WORD and command.any_operands))
        if word.kind is WordKind.DYNAMIC and not known:
            found.append(f"{'a word' if word.text == ANY_WORD else word.text} is only known at run time")
        elif word.kind is WordKind.GLOB and not known and not _starts_in_folder(word):
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


def _starts_in_folder(word: Word) -> bool:
    return "/" in word.fixed_start and not word.fixed_start.startswith("-")


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


def _collect(text: str) -> tuple[tuple[SimpleCommand, ...], tuple[SimpleCommand, ...], tuple[Concern, ...]]:
    """Walk the text and, in turn, every shell text and every command that it would run."""
    texts: deque[_Text] = deque([_Text(text)])
    commands: list[SimpleCommand] = []
    guesses: list[SimpleCommand] = []
    concerns: list[Concern] = []
    parsed = words = 0
    while texts:
        current = texts.popleft()
        parsed += 1
        if parsed > MAX_SCRIPTS:
            raise UnreadableError(f"it holds more than {MAX_SCRIPTS} shell texts")
        found = _walked(current)
        concerns += found.concerns
        texts += [_Text(inner, "process substitution") for inner in found.texts]
        words += sum(len(command.words) for command in found.commands)
        for command in found.commands:
            commands += _unwrapped(replace(command, via=command.via or current.via), guesses, texts)
            if len(commands) + len(guesses) > MAX_COMMANDS or words > MAX_WORDS:
                raise UnreadableError(f"it has more than {MAX_COMMANDS} commands or {MAX_WORDS} words")
    return tuple(commands), tuple(guesses), tuple(concerns)


@dataclass(frozen=True, slots=True)
class _Text:
    """A shell text to parse. A partial one holds what is known before run time; it need not parse."""

    text: str
    via: str = ""
    partial: bool = False


def _walked(current: _Text) -> Found:
    try:
        return walk(parse(current.text), current.text)
    except UnreadableError:
        if not current.partial:
            raise
        return Found()


def _unwrapped(command: SimpleCommand, guesses: list[SimpleCommand], texts: deque[_Text]) -> Iterator[SimpleCommand]:
    """The command and what it wraps, outermost first; shell texts go to `texts`."""
    waiting = deque([(command, 0)])
    while waiting:
        current, depth = waiting.popleft()
        if depth > MAX_WRAPPING:
            raise UnreadableError(f"commands are wrapped more than {MAX_WRAPPING} deep")
        found = unwrap(current)
        hazards = list(found.hazards)
        name = current.program
        for script in found.scripts:
            if script.static:
                texts.append(_Text(script.text, f"{name} (shell text)"))
            else:
                texts.append(_Text(script.partial or "", f"{name} (shell text)", partial=True))
                hazards.append(Hazard(NEVER, "runs text that is only known at run time"))
        transparent = current.transparent or found.transparent
        yield with_facts(replace(current, hazards=(*current.hazards, *hazards), transparent=transparent))
        waiting += [(_inner(current, words, name), depth + 1) for words in found.inner if words]
        guesses += [with_facts(_inner(current, words, name)) for words in found.guesses if words]


def _inner(outer: SimpleCommand, words: tuple[Word, ...], via: str) -> SimpleCommand:
    """A wrapped command; here-documents of the wrapper are its input too."""
    source = " ".join(word.text for word in words)
    return SimpleCommand(
        words,
        source,
        background=outer.background,
        input_texts=outer.input_texts,
        via=via,
        line=outer.line,
        inside=outer.inside,
    )
