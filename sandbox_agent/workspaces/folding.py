"""Names as the laxest file systems take them: letter case, width, invisible characters, and what Windows drops at the
end of a name do not tell two names apart there. What is dangerous or git's under one of its names is so under all.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_DROPPED = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u3164\uffa0") | frozenset(
    chr(code) for code in range(0xFE00, 0xFE10)
)
"""Ignored besides all format characters (category Cf)."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def folded(path: str) -> str:
    """A relative path in the one form that all its spellings share."""
    lower = path.lower()
    if lower.isascii():
        return "/".join(map(_trimmed, lower.split("/")))
    wide = unicodedata.normalize("NFKC", path).casefold()
    kept = "".join(char for char in wide if char not in _DROPPED and unicodedata.category(char) != "Cf")
    return "/".join(map(_trimmed, unicodedata.normalize("NFKC", kept).split("/")))


def has_lookalikes(path: str) -> bool:
    """Whether something in it besides letter case may fold to plain ASCII, or to nothing: told quickly."""
    return not path.isascii() and any(map(_folds_to_ascii, set(_NOT_ASCII.findall(path))))


@functools.cache
def _folds_to_ascii(char: str) -> bool:
    return folded(char).isascii()


def _trimmed(name: str) -> str:
    """Without the stream and the trailing dots and blanks that Windows leaves out; a name of nothing else stays."""
    return name.partition(":")[0].rstrip(". ") or name
