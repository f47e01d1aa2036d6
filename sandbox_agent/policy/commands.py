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
_LITERAL_STAR = "\ue001"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPERATORS = re.compile(r"&&|\|\||[;|&<>\n`]|\$\(")


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """The words a rule names. `everything` is the rule `Bash(*)`."""

    text: str
    regex: re.Pattern[str]
    everything: bool
    words: tuple[str, ...]
    """The rule's own words, without the prefix mark; a wildcard is still in them."""
    literal_words: int
    """How many of them, from the front, are named without a wildcard."""

    def matches(self, words: Sequence[str]) -> bool:
        """True if the pattern covers exactly this command."""
        return self.everything or self.regex.fullmatch(_BETWEEN_WORDS.join(words)) is not None


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
    pattern = _BETWEEN_WORDS.join(_word_regex(word) for word in words)
    if prefix:
        pattern += f"(?:{_BETWEEN_WORDS}.*)?"
    literal = next((index for index, word in enumerate(words) if "*" in word), len(words))
    named = tuple(word.replace(_LITERAL_STAR, "*") for word in words)
    return CommandPattern(text, re.compile(pattern, re.DOTALL), everything, named, literal)


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


def _word_regex(word: str) -> str:
    """`*` is any text; it crosses words, so that `Bash(ls*)` covers `ls -la` as people expect."""
    return ".*".join(re.escape(piece.replace(_LITERAL_STAR, "*")) for piece in word.split("*"))
