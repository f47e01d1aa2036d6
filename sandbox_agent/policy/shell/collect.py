"""All commands that a text would run: those in its syntax tree, and in turn those of every shell text and wrapper.

Everything here is bounded in time and number, so that no text keeps the judge busy.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from sandbox_agent.policy.shell.facts import with_facts
from sandbox_agent.policy.shell.model import NEVER, Concern, Hazard, ShellText, SimpleCommand, Word
from sandbox_agent.policy.shell.parser import UnreadableError, parse
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.policy.shell.walk import MAX_COMMANDS, Found, walk
from sandbox_agent.policy.shell.wrappers import unwrap

MAX_SCRIPTS = 20
"""Shell texts inside one command (`bash -c`, `eval`, here-documents) that are parsed; each costs a process."""
MAX_WRAPPING = 10
MAX_WORDS = 5000
"""Of the commands as written."""
MAX_WRAPPED_WORDS = 1000
"""Of a command that runs another: what it may run is tried from many of its words."""
_READ_BY_BASH = frozenset({"bash", "rbash", "eval", "trap"})
TIMEOUT_S = 1.7
"""For all texts of a command together."""


@dataclass(frozen=True, slots=True)
class Collected:
    """`commands` are run, outermost first; `guesses` may be; `concerns` are what is no simple command."""

    commands: tuple[SimpleCommand, ...]
    guesses: tuple[SimpleCommand, ...]
    concerns: tuple[Concern, ...]


@dataclass(slots=True)
class _Collection:
    """What is found so far, and what is still to be looked at."""

    deadline: float
    begun_cpu_s: float
    texts: deque[ShellText]
    commands: list[SimpleCommand] = field(default_factory=list)
    guesses: list[SimpleCommand] = field(default_factory=list)
    concerns: list[Concern] = field(default_factory=list)
    parsed: int = 0
    words: int = 0

    def time_left_s(self) -> float:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            starved = time.thread_time() - self.begun_cpu_s < TIMEOUT_S / 4
            raise UnreadableError("reading it took too long", passing=True, starved=starved and self.parsed <= 2)
        return left_s

    def add(self, found: list[SimpleCommand], command: SimpleCommand) -> None:
        if len(self.commands) + len(self.guesses) >= MAX_COMMANDS:
            raise UnreadableError(f"it has more than {MAX_COMMANDS} commands")
        found.append(with_facts(command))


def collect(text: str) -> Collected:
    """Walk the text and, in turn, every shell text and every command that it would run.

    Raises:
        UnreadableError: it is not bash, or beyond a cap.
    """
    found = _Collection(time.monotonic() + TIMEOUT_S, time.thread_time(), deque([ShellText(text)]))
    while found.texts:
        current = found.texts.popleft()
        found.parsed += 1
        if found.parsed > MAX_SCRIPTS:
            raise UnreadableError(f"it holds more than {MAX_SCRIPTS} shell texts")
        walked = _walked(current, found.time_left_s())
        found.concerns += walked.concerns
        found.texts += walked.texts
        found.words += sum(len(command.words) for command in walked.commands)
        if found.words > MAX_WORDS:
            raise UnreadableError(f"it has more than {MAX_WORDS} words")
        for command in walked.commands:
            input_texts = (*current.input_texts, *command.input_texts)
            _unwrap(replace(command, via=command.via or current.via, input_texts=input_texts), found)
    return Collected(tuple(found.commands), tuple(found.guesses), tuple(found.concerns))


def _walked(current: ShellText, timeout_s: float) -> Found:
    try:
        walked = walk(parse(current.text, timeout_s=timeout_s), current.text)
    except UnreadableError as exc:
        if exc.passing:
            raise  # that a busy machine did not read it says nothing of what it would run
        if current.other is not None:
            return _walked(ShellText(current.other, current.via), timeout_s)
        if not current.partial:
            raise
        return Found()
    if current.other is not None:
        walked.texts.append(ShellText(current.other, current.via, partial=True))
    if current.plain_sh:
        _read_by_sh(current.text, walked, timeout_s)
    return walked


def _read_by_sh(text: str, walked: Found, timeout_s: float) -> None:
    """Take in what a plain `sh` would run of a text that is bash."""
    try:
        plain = walk(parse(text, dialect="posix", timeout_s=timeout_s), text)
    except UnreadableError as exc:
        if exc.passing:
            raise
        walked.concerns.append(Concern(text, "a plain sh reads it otherwise; write bash -c"))
        return
    walked.commands += [command for command in plain.commands if command not in walked.commands]
    walked.concerns += [concern for concern in plain.concerns if concern not in walked.concerns]
    walked.texts += [inner for inner in plain.texts if inner not in walked.texts]


def _unwrap(command: SimpleCommand, found: _Collection) -> None:
    """Take in the command and what it wraps, outermost first; shell texts wait for their turn."""
    waiting = deque([(command, 0)])
    while waiting:
        current, depth = waiting.popleft()
        found.time_left_s()
        if depth > MAX_WRAPPING:
            raise UnreadableError(f"commands are wrapped more than {MAX_WRAPPING} deep")
        inner = unwrap(current)
        if inner.inner and len(current.words) > MAX_WRAPPED_WORDS:
            raise UnreadableError(f"a command that runs another has more than {MAX_WRAPPED_WORDS} words")
        hazards = (*current.hazards, *inner.hazards, *_scripts(current, inner.scripts, found))
        transparent = current.transparent or inner.transparent
        found.add(found.commands, replace(current, hazards=hazards, transparent=transparent))
        waiting += [(_inner(current, words), depth + 1) for words in inner.inner if words]
        for words in inner.guesses:
            if words:
                found.add(found.guesses, _inner(current, words))


def _scripts(command: SimpleCommand, scripts: list[Word], found: _Collection) -> Iterator[Hazard]:
    via = f"{command.program} (shell text)"
    plain_sh = command.program not in _READ_BY_BASH
    for script in scripts:
        # A text that comes from the input itself has been looked through with that.
        left = tuple(text for text in command.input_texts if text.text != script.text)
        add = partial(ShellText, via=via, input_texts=left)
        if command.program in tables().other_shells:
            found.texts.append(add(script.text, partial=True))
            yield Hazard(NEVER, f"runs text that {command.program} reads otherwise than bash")
        elif script.static:
            found.texts.append(add(script.text, plain_sh=plain_sh))
        else:
            found.texts.append(add(script.partial or "", partial=True, plain_sh=plain_sh))
            yield Hazard(NEVER, "runs text that is only known at run time")


def _inner(outer: SimpleCommand, words: tuple[Word, ...]) -> SimpleCommand:
    """A wrapped command; the input of the wrapper is its own, too."""
    source = " ".join(word.text for word in words)
    return SimpleCommand(
        words,
        source,
        background=outer.background,
        input_texts=outer.input_texts,
        via=outer.program,
        line=outer.line,
        inside=outer.inside,
    )
