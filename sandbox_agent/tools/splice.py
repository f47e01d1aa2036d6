"""Replacing text in a file's bytes: what lies outside a match is never decoded, so it cannot change.

A bare LF in the old text matches LF and CRLF, since Read shows neither; everything else matches exactly.
"""

from __future__ import annotations

import difflib
import itertools
import re
from dataclasses import dataclass

MAX_COUNTED = 10_000
"""How many matches of an ambiguous text are counted."""

_BARE_LF = re.compile(rb"(?<!\r)\n")
_EITHER_END = rb"(?:\r\n|(?<!\r)\n)"
_ANY_END = re.compile(rb"\r?\n")


@dataclass(frozen=True, slots=True)
class Span:
    """A match, as positions in the file's bytes."""

    start: int
    end: int


def find(data: bytes, old: bytes, *, at_most: int = MAX_COUNTED) -> list[Span]:
    """Every place where `old` (not empty) matches, overlapping ones too: any of them makes a match ambiguous."""
    pattern = _pattern(old)
    spans: list[Span] = []
    found = pattern.search(data)
    while found is not None and len(spans) < at_most:
        spans.append(Span(found.start(), found.end()))
        found = pattern.search(data, found.start() + 1)
    return spans


def find_apart(data: bytes, old: bytes, *, at_most: int) -> list[Span]:
    """The places that can be replaced together, from the left, as every replace does; no more than `at_most`."""
    return [Span(*found.span()) for found in itertools.islice(_pattern(old).finditer(data), at_most)]


def _pattern(old: bytes) -> re.Pattern[bytes]:
    return re.compile(_EITHER_END.join(re.escape(part) for part in _BARE_LF.split(old)))


def splice(data: bytes, spans: list[Span], old: bytes, new: bytes) -> bytes:
    """`data` with each span replaced by `new`, whose bare LFs become the line ends of that place."""
    out: list[bytes] = []
    position = 0
    for span in spans:
        out += [data[position : span.start], _with_ends(data, span, old, new)]
        position = span.end
    return b"".join([*out, data[position:]])


def _with_ends(data: bytes, span: Span, old: bytes, new: bytes) -> bytes:
    parts = _BARE_LF.split(new)
    if len(parts) == 1:
        return new
    there = [end.group() for end in _ANY_END.finditer(data, span.start, span.end)]
    if not there:
        return _end_near(data, span).join(parts)
    if len(set(there)) == 1:
        return there[0].join(parts)
    return b"".join(part + end for part, end in zip(parts, [*_mixed_ends(there, old, parts), b""], strict=True))


def _end_near(data: bytes, span: Span) -> bytes:
    """The end of the line the match lies in, else of the one before, else LF."""
    after = data.find(b"\n", span.end)
    at = after if after >= 0 else data.rfind(b"\n", 0, span.start)
    return b"\r\n" if at > 0 and data[at - 1 : at] == b"\r" else b"\n"


def _mixed_ends(there: list[bytes], old: bytes, parts: list[bytes]) -> list[bytes]:
    """Line ends for all but the last part where the match holds both kinds: a line that stays keeps its own."""
    before = _ANY_END.split(old)
    ends: list[bytes | None] = [None] * (len(parts) - 1)
    for block in difflib.SequenceMatcher(None, before, parts, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            if block.a + offset < len(there) and block.b + offset < len(ends):
                ends[block.b + offset] = there[block.a + offset]
    filled: list[bytes] = []
    for end in ends:
        filled.append(end if end is not None else (filled[-1] if filled else there[0]))
    return filled
