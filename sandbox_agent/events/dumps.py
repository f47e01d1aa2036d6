"""Bytes that are written out one by one: `73 65 63`, `73:65:63`, `\\x73\\x65\\x63`, and what od, xxd and hexdump print.

A reading of a text is the digits that belong together, with their places in the text, so that what is found in the
digits is found in the text. Making one is slow, so `Windows` says first in which parts of a text it is worth it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

PART_CHARS = 32 * 1024
OVERLAP_CHARS = 4 * 1024
"""More than any value that is looked for, written out in rows."""

MIN_ROW_BYTES = 8
WINDOW_BYTES = 4

_HEX = "[0-9A-Fa-f]"
_TOKEN = re.compile(f"(?:{_HEX}{{8}}|{_HEX}{{4}}|{_HEX}{{2}})")
_BETWEEN = "(?: {1,2}|[:,-])"
_ROW = re.compile(rf"(?<![0-9A-Za-z]){_TOKEN.pattern}(?:{_BETWEEN}{_TOKEN.pattern})*(?![0-9A-Za-z])")
_MARK = r"(?:\\x|\\u00|0[xX]|[%=])"
_MARKED = re.compile(rf"(?:{_MARK}{_HEX}{{2}}[ ,:;-]{{0,2}}\s{{0,4}}){{{MIN_ROW_BYTES},}}")
_BEHIND_MARK = re.compile(rf"{_MARK}({_HEX}{{2}})")
_OFFSET = re.compile(rf"{_HEX}{{7,8}}(?:: | {{1,2}})")
_CHARACTERS = re.compile(r" {1,}[|>](?P<barred>[^\n]+)| {2,}(?P<plain>\S[^\n]*)")
_NOISE = b" \t\r\n:,;-%="


class Reading(NamedTuple):
    """`digits` in lower case, two a byte; `places` has for each byte where it begins and ends in the text."""

    digits: str
    places: list[tuple[int, int]]


def parts(text: str) -> Iterator[tuple[int, str]]:
    """The text in overlapping parts, each with its place."""
    for start in range(0, max(len(text) - OVERLAP_CHARS, 1), PART_CHARS):
        yield start, text[start : start + PART_CHARS + OVERLAP_CHARS]


def bare_digits(text: str) -> str:
    """The text without anything that stands between written out bytes: what `windows` are looked for in."""
    raw = text.encode("latin-1", "replace").lower()
    for mark in (b"\\x", b"\\u00", b"0x"):
        raw = raw.replace(mark, b"")
    return raw.translate(None, _NOISE).decode("latin-1")


def windows(raw: bytes) -> Iterator[str]:
    """Digits of which some stand in every row-wise dump of these bytes, whatever row they begin in."""
    for at in (0, WINDOW_BYTES):
        yield raw[at : at + WINDOW_BYTES].hex()
    for at in (0, 1, 3, 4):
        four = raw[at : at + WINDOW_BYTES]
        yield bytes((four[1], four[0], four[3], four[2])).hex()


def readings(text: str) -> Iterator[Reading]:
    """Every way in which bytes may be written out in the text."""
    for match in _MARKED.finditer(text):
        found = list(_BEHIND_MARK.finditer(text, *match.span()))
        yield Reading("".join(one[1] for one in found).lower(), [one.span() for one in found])
    for blanks in (1, 2):
        yield from _dump(text, blanks)


def characters_beside(text: str, end: int) -> tuple[int, int] | None:
    """Where the column stands in which a dump shows the bytes of a row as characters, behind the row's digits."""
    match = _CHARACTERS.match(text, end)
    return match.span(match.lastgroup or 0) if match else None


def _dump(text: str, blanks: int) -> Iterator[Reading]:
    """The rows of a dump, together. With `blanks` 1 a row ends where two stand, behind which xxd has characters;
    hexdump has two in the middle."""
    digits: list[str] = []
    places: list[tuple[int, int]] = []
    start = 0
    for line in [*text.split("\n"), ""]:
        row = _row(line)
        if row is not None:
            begin, end = row
            wide = line.find("  ", begin, end) if blanks == 1 else -1
            for token in _TOKEN.finditer(line, begin, wide if wide > 0 else end):
                first, last = token.span()
                digits += [line[at : at + 2] for at in range(first, last, 2)]
                places += [(start + at, start + at + 2) for at in range(first, last, 2)]
        elif digits:
            yield from _both_ways(digits, places)
            digits, places = [], []
        start += len(line) + 1


def _row(line: str) -> tuple[int, int] | None:
    """Where the digits of a line stand: right behind an offset, else the longest of what could be some."""
    offset = _OFFSET.match(line)
    first = _ROW.match(line, offset.end()) if offset else None
    if first is not None:
        return first.span()
    return max((match.span() for match in _ROW.finditer(line)), key=lambda row: row[1] - row[0], default=None)


def _both_ways(digits: list[str], places: list[tuple[int, int]]) -> Iterator[Reading]:
    """As they stand, and with the bytes of each word of two turned round, as od and hexdump write them."""
    yield Reading("".join(digits).lower(), places)
    even = len(digits) & ~1
    if len(digits) > 1 and places[0][1] == places[1][0]:
        order = [at ^ 1 if at < even else at for at in range(len(digits))]
        yield Reading("".join(digits[at] for at in order).lower(), [places[at] for at in order])
