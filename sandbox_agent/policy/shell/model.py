"""What the analysis of a command is made of: words, redirects, simple commands. Values only."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

ANY_WORD = "\ue002"
"""Stands for a word that is only known at run time; no rule text can hold it."""


class WordKind(enum.Enum):
    """STATIC: the text is the word. GLOB: a file name pattern. DYNAMIC: only known at run time."""

    STATIC = "static"
    GLOB = "glob"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Word:
    """A word after quote removal. `text` of a GLOB has quoted pattern characters escaped; of a DYNAMIC it is what is
    written."""

    text: str
    kind: WordKind = WordKind.STATIC
    partial: str | None = None
    """Of a DYNAMIC word: quotes removed, expansions as they are written. What deny rules see of `bash -c "rm $x"`."""

    variables_only: bool = False
    """Of a DYNAMIC word: nothing but `$name` and the like makes it so, and looking them up runs nothing."""

    @property
    def static(self) -> bool:
        return self.kind is WordKind.STATIC

    @property
    def fixed_start(self) -> str:
        """What the word surely begins with: all of a static one, a GLOB up to its first pattern character."""
        if self.kind is WordKind.GLOB:
            return re.split(r"[*?\[\\]", self.text, maxsplit=1)[0]
        return self.text if self.static else ""

    @property
    def names_option(self) -> bool:
        """It is an option whatever a pattern in its value becomes: `--include=*.py`."""
        return self.fixed_start.startswith("--") and "=" in self.fixed_start

    @property
    def match_text(self) -> str:
        """The text for rules: `ANY_WORD` unless static."""
        return self.text if self.static else ANY_WORD


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirect. `op` as written; `descriptor` is the number or `{name}` in front; `text` is a here-document."""

    op: str
    target: Word
    descriptor: str = ""
    text: Word | None = None

    @property
    def copies_descriptor(self) -> bool:
        """`2>&1`, `>&-`: no file is opened."""
        if self.op not in (">&", "<&") or not self.target.static:
            return False
        return self.target.text == "-" or self.target.text.removesuffix("-").isdigit()

    @property
    def is_text(self) -> bool:
        """A here-document or here-string."""
        return self.op in ("<<", "<<-", "<<<")

    @property
    def writes(self) -> bool:
        """It opens a file for writing."""
        return not self.copies_descriptor and self.op in (">", ">>", ">|", "&>", "&>>", ">&", "<>")

    @property
    def reads(self) -> bool:
        """It opens a file for reading."""
        return not self.copies_descriptor and self.op in ("<", "<>", "<&")


@dataclass(frozen=True, slots=True)
class Hazard:
    """Why a command does not pass by a prefix. `index` is the word that makes it so: a rule whose own literal words
    reach that far names it and lets it pass. `NEVER` is beyond every rule."""

    index: int
    why: str
    inner: bool = False
    """It runs another command, which is judged by itself, and does nothing else: the read-only list looks at that."""


NEVER = 1_000_000


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command anywhere in the text. Without words it only redirects.

    `via` is the wrapper that runs it ("xargs", "bash -c"), "" for the shell itself. `transparent` marks a wrapper that
    needs no rule of its own. `hazards` are what the tables say about its words.
    """

    words: tuple[Word, ...]
    source: str
    assigns: bool = False
    background: bool = False
    redirects: tuple[Redirect, ...] = ()
    input_texts: tuple[Word, ...] = ()
    """What may be on its input: its own here-documents and those of what is around it, and what a pipe brings."""
    via: str = ""
    transparent: bool = False
    hazards: tuple[Hazard, ...] = ()
    on_read_only_list: bool = False
    any_operands: bool = False
    """No operand or option does harm: names that come at run time may be what they will."""
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    searches_below: tuple[Word, ...] = ()
    """Folders whose files it reads, for recursive commands."""
    skips_hidden: bool = False
    """A recursive command that leaves out names that begin with a dot."""
    line: int = 1
    """Where it stands in its text, from 1; of a wrapped command, where its wrapper stands."""
    inside: tuple[str, ...] = ()
    """What it stands in, outermost first: "loop", "substitution", ..."""

    @property
    def static_words(self) -> tuple[str, ...] | None:
        """The words, or None if one is not static or something else rides along."""
        if not all(word.static for word in self.words) or self.assigns or self.redirects or self.background:
            return None
        return tuple(word.text for word in self.words)

    @property
    def program(self) -> str:
        """The program's base name, "" where it is not static."""
        if not self.words or not self.words[0].static:
            return ""
        return self.words[0].text.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class ShellText:
    """A shell text inside another one, to be parsed by itself. `via` is what runs it. A partial one holds what is known
    before run time; it need not parse. Where there is another reading, one of the two must."""

    text: str
    via: str = ""
    partial: bool = False
    other: str | None = None
    input_texts: tuple[Word, ...] = ()
    """What may be on the input of what runs it."""
    plain_sh: bool = False
    """A plain `sh` may run it, which reads `$'x'`, `((x))` and `[[ x ]]` otherwise than bash."""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something outside a simple command that keeps the whole from being allowed unasked."""

    source: str
    why: str
