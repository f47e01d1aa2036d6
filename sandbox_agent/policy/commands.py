"""Command patterns of rules, `Bash(...)`: what one simple command's words are compared with.

Three forms: exact words (`git status`), a prefix of whole words (`git log:*`, the same as `git log *`), and
wildcards (`npm run test*`, where `*` is any text, further words included). Quotes in a rule group words as bash does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_agent.errors import PolicyError

_BETWEEN_WORDS = "\x1f"
_NO_BOUNDARY = "\ue003"
"""For a word that holds the character between words itself."""
_LITERAL_STAR = "\ue001"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPERATORS = re.compile(r"&&|\|\||[;|&<>\n`]|\$\(")


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """The words a rule names. `everything` is the rule `Bash(*)`."""

    text: str
    pieces: tuple[str, ...]
    """The rule's words in one text, cut at its wildcards."""
    prefix: bool
    """Further words may follow."""
    everything: bool
    words: tuple[str, ...]
    """The rule's own words, without the prefix mark; a wildcard is still in them."""
    literal_words: int
    """How many of them, from the front, are named without a wildcard."""

    def matches(self, words: Sequence[str]) -> bool:
        """True if the pattern covers exactly this command."""
        if self.everything:
            return True
        text = _BETWEEN_WORDS.join(word.replace(_BETWEEN_WORDS, _NO_BOUNDARY) for word in words)
        more = (*self.pieces[:-1], self.pieces[-1] + _BETWEEN_WORDS, "")
        return _matches(self.pieces, text) or (self.prefix and _matches(more, text))


def parse_command_pattern(text: str, *, location: str | None = None) -> CommandPattern:
    """The pattern of a `Bash(...)` rule.

    Raises:
        PolicyError: it can never match one simple command (several commands, a redirect, an assignment in front),
            or its quotes do not close.
    """
    body = text.strip()
    prefix = body.endswith((":*", " *"))
    stem = body[:-2].rstrip() if prefix else body
    words = _split(stem, text, location)
    if _ASSIGNMENT.match(words[0] if words else ""):
        raise PolicyError(
            f"Bash({text}): an assignment cannot be part of a rule; deny and ask look past it, allow never passes it",
            location=location,
        )
    everything = stem in ("", "*")
    pieces = tuple(piece.replace(_LITERAL_STAR, "*") for piece in _BETWEEN_WORDS.join(words).split("*"))
    literal = next((index for index, word in enumerate(words) if "*" in word), len(words))
    named = tuple(word.replace(_LITERAL_STAR, "*") for word in words)
    return CommandPattern(text, pieces, prefix, everything, named, literal)


def _split(stem: str, text: str, location: str | None) -> list[str]:
    """The words of a rule, with `*` left as the wildcard and `\\*` marked as a literal star."""
    try:
        words = shlex.split(stem.replace("\\*", _LITERAL_STAR))
    except ValueError as exc:
        raise PolicyError(f"Bash({text}): its quotes do not close", location=location) from exc
    unquoted = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", "", stem)
    if _OPERATORS.search(unquoted):
        raise PolicyError(
            f"Bash({text}): a rule judges one simple command; write one rule per command, and Edit(path) for redirects",
            location=location,
        )
    return words


def _matches(pieces: Sequence[str], text: str) -> bool:
    """Whether the text is the pieces with anything between them, words included, so that `Bash(ls*)` covers `ls -la`
    as people expect. Each piece is taken where it first occurs: no text makes that slow, as a backtracking regular
    expression would be."""
    first, *middle = pieces
    if not middle:
        return text == first
    last = middle.pop()
    if not text.startswith(first) or not text.endswith(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return position <= end
