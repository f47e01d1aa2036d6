"""What may stand on a command's standard input, as far as the text says it: here-documents, and what `echo` writes into
a pipe.

Only deny and ask rules look through it. What a shell makes of its input is never allowed: what runs in it before may
take a part of it away (`head -c 3`), and then the rest is read from another place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox_agent.policy.shell.model import Redirect, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.words import ansi_c

NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""What programs call their standard input where they want a file."""

_ECHO_OPTIONS = frozenset({"-n", "-e", "-E", "-ne", "-en", "-nE", "-En"})


def texts_of(redirects: Iterable[Redirect]) -> tuple[Word, ...]:
    """The here-documents among these redirects."""
    return tuple(redirect.text for redirect in redirects if redirect.text is not None)


def printed(command: SimpleCommand) -> Iterator[Word]:
    """What the command plainly writes into a pipe: the words of `echo` and `printf`; else what it reads itself."""
    words = list(command.words[1:])
    if command.program == "echo":
        while words and words[0].text in _ECHO_OPTIONS:
            words.pop(0)
    if command.program not in ("echo", "printf"):
        yield from command.input_texts
        return
    texts = [_known(word) for word in words]
    spellings = {" ".join(texts): None}
    if command.program == "printf":
        spellings |= dict.fromkeys((" ".join(texts[1:]), *texts))
    for text in (*spellings, *(ansi_c(text) for text in spellings if "\\" in text)):
        yield Word(text)


def doubtful(texts: Iterable[Word]) -> list[Word]:
    """The texts as such that may be read, or only in part."""
    return [Word(word.text, WordKind.DYNAMIC, _known(word)) for word in texts]


def _known(word: Word) -> str:
    return word.text if word.partial is None else word.partial
