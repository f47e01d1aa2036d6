"""The hash chain of a record: each line carries the hash of the line before, which this verifies.

A chain shows that lines were changed, lost, added or moved, but for the end: whoever cuts off the last lines, or writes
the whole file anew, leaves a chain that holds. That shows only against a head (the hash of the last line) that was kept
elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.tape.lines import Line, Link, parse, read_lines

GENESIS = "0" * 64
"""Stands before the first line."""


class Break(NamedTuple):
    """A place where the chain does not hold: the line, counted from 1, and why, in words."""

    line: int
    reason: str


class Chain(NamedTuple):
    """What was found.

    `breaks` are all places where it does not hold. `cut_lines` are lines that somebody who was killed did not finish:
    no sign of a change. `heads` has the hash of every whole line, in order.
    """

    lines: int
    breaks: tuple[Break, ...]
    cut_lines: tuple[int, ...]
    heads: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.breaks

    @property
    def head(self) -> str:
        """The hash of the last whole line."""
        return self.heads[-1] if self.heads else GENESIS


def verify(path: Path) -> Chain:
    """Read a record and check its chain.

    Raises:
        RecordError: it cannot be read.
    """
    breaks: list[Break] = []
    cut: list[int] = []
    heads: list[str] = []
    seq, number = 0, 0
    for line in read_lines(path):
        number = line.number
        link = parse(line)
        if link is None:
            if is_cut(line, seq):
                cut.append(number)
            else:
                breaks.append(Break(number, _no_entry(line)))
            continue
        reason = _misfit(link, seq, heads[-1] if heads else GENESIS)
        if reason is not None:
            breaks.append(Break(number, reason))
        seq = link.seq + 1
        heads.append(line.sha256)
    if not heads:
        breaks.append(Break(1, "the record has no whole entry"))
    return Chain(number, tuple(breaks), tuple(cut), tuple(heads))


def is_cut(line: Line, seq: int) -> bool:
    """Whether a line that is no entry is the beginning of the entry that was due: its writer was killed.

    Whoever goes on with the record starts on a line of its own, so such a line may also stand in the middle.
    """
    begins = b'{"seq":%d,' % seq
    if not line.data or not (line.data.startswith(begins) or begins.startswith(line.data)):
        return False
    try:
        json.JSONDecoder().raw_decode(line.data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return True
    return False  # a whole entry with something behind it


def _misfit(link: Link, seq: int, head: str) -> str | None:
    if link.seq > seq:
        return f"the line is entry {link.seq}, and entry {seq} was due: {link.seq - seq} missing"
    if link.seq < seq:
        return f"the line is entry {link.seq}, and entry {seq} was due: it was moved, or put in"
    if link.prev != head:
        if head == GENESIS:
            return "the first line names a line before it"
        return "the line does not follow from the one before: one of the two was changed"
    return None


def _no_entry(line: Line) -> str:
    if not line.size_bytes:
        return "an empty line"
    if not line.data:
        return f"a line of {line.size_bytes:,} bytes, longer than any entry"
    return "not an entry of a record"
