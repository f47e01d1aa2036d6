"""Programs with a grammar of their own for what they run: find, fd, git. And what all unwrapping is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sandbox_agent.policy.shell.model import ANY_WORD, Hazard, Word, WordKind
from sandbox_agent.policy.shell.options import parse_options
from sandbox_agent.policy.shell.tables import tables

_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FD_RUNS = ("-x", "-X", "--exec", "--exec-batch")
RUN_TIME_WORD = Word(ANY_WORD, WordKind.DYNAMIC)
_RUN_TIME_TEXT = "${_}"
"""In a shell text, in the place of what is only known at run time."""


@dataclass(slots=True)
class Unwrapped:
    """What a command runs: `inner` word lists, `scripts` of shell text, and hazards of the wrapper itself.

    `guesses` are word lists that may or may not be run; only deny and ask rules look at them.
    """

    inner: list[tuple[Word, ...]] = field(default_factory=list)
    guesses: list[tuple[Word, ...]] = field(default_factory=list)
    scripts: list[Word] = field(default_factory=list)
    hazards: list[Hazard] = field(default_factory=list)
    transparent: bool = False

    @property
    def runs_something(self) -> bool:
        """What it runs is known."""
        return bool(self.inner or self.guesses or self.scripts)


def find_runs(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    for start, word in enumerate(words):
        if word.text not in _FIND_RUNS:
            continue
        end = start + 1
        while (
            end < len(words)
            and words[end].text not in (";", "\\;")
            and not (words[end].text == "+" and words[end - 1].text == "{}")
        ):
            end += 1
        yield tuple(replaced(words[start + 1 : end], ("{}",)))


def fd_runs(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    for start, word in enumerate(words):
        if word.text in _FD_RUNS:
            yield (*words[start + 1 :], RUN_TIME_WORD)


def git_runs(words: tuple[Word, ...], found: Unwrapped) -> None:
    """`git bisect run CMD`, `git submodule foreach TEXT`, `git rebase --exec TEXT`."""
    texts = [word.text for word in words]
    if "bisect" in texts and "run" in texts[texts.index("bisect") :]:
        found.inner.append(words[texts.index("run", texts.index("bisect")) + 1 :])
    if "submodule" in texts and "foreach" in texts:
        rest = [word for word in words[texts.index("foreach") + 1 :] if not word.text.startswith("-")]
        found.hazards.append(Hazard(texts.index("foreach"), "foreach: runs a command in each submodule"))
        if rest:
            found.scripts.append(joined(rest))
    if "rebase" in texts:
        parsed = parse_options(words, tables().programs["git"].subcommands["rebase"])
        found.scripts += [o.value for o in parsed.options if o.name in ("-x", "--exec") and o.value is not None]


def joined(words: list[Word] | tuple[Word, ...]) -> Word:
    static = all(word.static for word in words)
    if static:
        return Word(" ".join(word.text for word in words))
    partial = " ".join(word.text if word.partial is None else word.partial for word in words)
    return Word(partial, WordKind.DYNAMIC, partial)


def replaced(words: Sequence[Word], marks: Iterable[str]) -> Iterator[Word]:
    """The words; those in which a mark stands are only known at run time."""
    for word in words:
        text = word.text
        for mark in marks:
            text = text.replace(mark, _RUN_TIME_TEXT) if mark else text
        yield word if text == word.text else Word(ANY_WORD, WordKind.DYNAMIC, text)
