"""The one sanitiser: every string that reaches a terminal goes through here.

What a model, a tool or a file says can hold sequences that move the cursor, rename the window, reorder or hide
text. All of that is shown as an escape instead. `sanitise` is for display; `exact` is for text a person is about to
approve, where two different texts must never look the same.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_HIDDEN = re.compile(f"[{_INVISIBLE}]")
"""Draw nothing although Unicode counts them as letters, marks or symbols, so `str.isprintable` lets them pass."""

_EMOJI_STYLE = re.compile("(?<=[\u203c-\u3299\U0001f000-\U0001faff])\ufe0f")
"""One "show as emoji" selector right behind a symbol: models write it all the time, and it hides nothing there."""

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Exact(NamedTuple):
    """Text shown one-to-one. `escaped` counts characters shown as escapes; when it is not 0, every backslash of the
    text itself is doubled, so the pair (text, escaped > 0) tells exactly what it was."""

    text: str
    escaped: int


def escape(char: str) -> str:
    """The escape one character is shown as, in the spelling of Python and C."""
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _unsafe(char: str) -> bool:
    # isprintable() is False for exactly Cc, Cf, Cs, Co, Cn, Zl, Zp and every Zs but the plain space.
    return not char.isprintable() or _HIDDEN.match(char) is not None


def sanitise(text: str, *, newlines: bool = False, tabs: bool = False) -> str:
    """The text with everything a terminal would act on, or not show, as escapes.

    `newlines` and `tabs` keep those two characters as they are.
    """
    if text.isprintable() and not _HIDDEN.search(text):
        return text
    kept = ("\n" if newlines else "") + ("\t" if tabs else "")
    styled = {match.start() for match in _EMOJI_STYLE.finditer(text)}
    return "".join(
        escape(char) if char not in kept and index not in styled and _unsafe(char) else char
        for index, char in enumerate(text)
    )


def exact(text: str, *, newlines: bool = False) -> Exact:
    """The text shown so that no two texts look alike; tabs are always escapes, newlines unless kept."""
    kept = "\n" if newlines else ""
    escaped = sum(1 for char in text if char not in kept and _unsafe(char))
    if not escaped:
        return Exact(text, 0)
    shown = (escape(char) if char not in kept and _unsafe(char) else char for char in text.replace("\\", "\\\\"))
    return Exact("".join(shown), escaped)


def lookalikes(text: str, *, limit: int = 5) -> tuple[str, ...]:
    """The first `limit` different printable non-ASCII characters, as "U+0430 CYRILLIC SMALL LETTER A".

    A person cannot see that a letter of a program name is from another alphabet, so the prompt says it.
    """
    seen = dict.fromkeys(char for char in text if not char.isascii() and not _unsafe(char))
    return tuple(f"U+{ord(char):04X} {unicodedata.name(char, 'UNNAMED')}" for char in list(seen)[:limit])
