"""Finds any of many texts in a long one, at the cost of a look at every fourth character.

Wherever a text of eight characters or more stands, a group of four of it stands at a place that four divides. So only
these groups are looked up, as numbers, and what could stand there is compared. 10 MB take about a second of CPU, at
the worst.
"""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from sandbox_agent.events import dumps

_GROUP = 4
MIN_CHARS = 2 * _GROUP

# A line that was wrapped ends in the middle of what was encoded; before it may be a diff's column, or Read's number.
_WRAPPED = re.compile(r"[A-Za-z0-9+/_-]{16}")
_NUMBER = re.compile(r" *\d+\t")
_COLUMNS = "+- "


class Span(NamedTuple):
    """Where something was found, and the label of it."""

    start: int
    end: int
    label: str


class _Line(NamedTuple):
    start: int
    text: str


class _Index(NamedTuple):
    """Group to the places that it may have in a text; and the texts by how they begin, for what is like all others in
    one group is often not so in two."""

    offsets: dict[int, frozenset[int]]
    by_beginning: dict[str, list[str]]

    @classmethod
    def of(cls, texts: Collection[str]) -> _Index:
        offsets: dict[int, frozenset[int]] = {}
        by_beginning: dict[str, list[str]] = {}
        for text in texts:
            by_beginning.setdefault(text[:MIN_CHARS], []).append(text)
            raw = text.encode("latin-1", "replace")
            for offset in range(_GROUP):
                group = int.from_bytes(raw[offset : offset + _GROUP], sys.byteorder)
                offsets[group] = offsets.get(group, frozenset()) | {offset}
        return cls(offsets, by_beginning)


class Finder:
    """Looks for texts, each with a label."""

    def __init__(self, texts: Mapping[str, str], wraps: Collection[str], written: Collection[str] = ()) -> None:
        """`wraps` are those that are found across line ends too, `written` pieces of those that bytes are written out
        with. All must have `MIN_CHARS` at least."""
        self._labels = dict(texts)
        self._index = _Index.of(self._labels)
        self._wrapped = _Index.of(wraps)
        self._written = _Index.of(written)
        self._sorted = sorted(self._labels)
        self._longest = max(map(len, self._sorted), default=0)
        self._beginnings = {text[:size] for text in self._sorted for size in (1, 2)}

    def spans(self, text: str) -> list[Span]:
        """All that is found, in order and apart from each other; the label of the first where several overlap."""
        if not self._labels or len(text) < MIN_CHARS:
            return []
        found = list(self._direct(text, self._index))
        if "\n" in text:
            found += self._across_lines(text)
        for start, part in dumps.parts(text):
            if any(self._direct(dumps.bare_digits(part), self._written)):
                found += (Span(start + one.start, start + one.end, one.label) for one in self._written_out(part))
        return _merged(found)

    def held_from(self, text: str) -> int:
        """Where the end of a text begins that may be the beginning of something; its length if there is none such."""
        cut = len(text)
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            start = len(text) - length
            if text[start : start + 2] not in self._beginnings:
                continue
            end = text[start:]
            at = bisect.bisect_right(self._sorted, end)
            if at < len(self._sorted) and self._sorted[at].startswith(end):
                cut = start
                break
        return min([cut, *(span.start for span in self.spans(text) if span.end > cut)])

    def _direct(self, text: str, index: _Index) -> Iterator[Span]:
        # One byte a character, so that places are the same in both; what is compared in the end is the text.
        raw = text.encode("latin-1", "replace")
        numbers = memoryview(raw + bytes(-len(raw) % _GROUP)).cast("I")
        offsets = index.offsets
        if offsets.keys().isdisjoint(numbers):
            return
        for number in [number for number, group in enumerate(numbers) if group in offsets]:
            for offset in offsets[numbers[number]]:
                start = number * _GROUP - offset
                for wanted in index.by_beginning.get(text[start : start + MIN_CHARS], ()) if start >= 0 else ():
                    if text.startswith(wanted, start):
                        yield Span(start, start + len(wanted), self._labels.get(wanted, ""))

    def _written_out(self, text: str) -> Iterator[Span]:
        """What is found in the digits of bytes alone, one span a line, and the characters that a dump has beside it."""
        for reading in dumps.readings(text):
            for span in self._direct(reading.digits, self._wrapped):
                rows: dict[int, Span] = {}
                for start, end in sorted(reading.places[span.start // 2 : (span.end + 1) // 2]):
                    line = text.find("\n", start)
                    before = rows.get(line)
                    rows[line] = Span(before.start if before else start, end, span.label)
                yield from rows.values()
                for line in rows:
                    last = max(end for _, end in reading.places if line < 0 or end <= line)
                    beside = dumps.characters_beside(text, last)
                    if beside is not None:
                        yield Span(*beside, span.label)

    def _across_lines(self, text: str) -> Iterator[Span]:
        run: list[_Line] = []
        start = 0
        for line in text.split("\n"):
            run.append(_Line(start, line))
            start += len(line) + 1
            end = len(line) - line.endswith("\r")
            if end < 16 or _WRAPPED.fullmatch(line, end - 16, end) is None:
                yield from self._in_run(run)
                run = []
        yield from self._in_run(run)

    def _in_run(self, run: Sequence[_Line]) -> Iterator[Span]:
        """Lines of which each but the last may go on in the next."""
        if len(run) < 2:
            return
        yield from self._joined([_Line(line.start, line.text.removesuffix("\r")) for line in run])
        number = _NUMBER.match(run[-1].text)
        if number is not None or run[-1].text[:1] in _COLUMNS:
            yield from self._joined([_without_column(line) for line in run])

    def _joined(self, lines: Sequence[_Line]) -> Iterator[Span]:
        starts, size = [], 0
        for line in lines:
            starts.append(size)
            size += len(line.text)
        for span in self._direct("".join(line.text for line in lines), self._wrapped):
            at = span.start
            while at < span.end:  # one span a line: what stands between the lines stays
                number = bisect.bisect_right(starts, at) - 1
                stop = min(span.end, starts[number] + len(lines[number].text))
                moved = lines[number].start - starts[number]
                yield Span(at + moved, stop + moved, span.label)
                at = stop


def _without_column(line: _Line) -> _Line:
    number = _NUMBER.match(line.text)
    width = number.end() if number is not None else int(line.text[:1] in _COLUMNS)
    return _Line(line.start + width, line.text[width:].removesuffix("\r"))


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged
