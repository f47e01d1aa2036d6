"""Where things stand in a notebook's JSON: its members, its cells, and how it is written. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # the standard library's own, without a stub
from typing import Any, NamedTuple

NO_KIND = "unknown"
"""Of a cell that does not say."""

MAX_KEYS = 1000
MAX_CELLS = 50_000
"""More would keep the engine busy for seconds, and are nobody's notebook."""

_BLANK = re.compile(r"[ \t\n\r]*")
_ESCAPED = re.compile(r"\\u00[89a-f]|\\u0[1-9a-f]|\\u[1-9a-f]", re.IGNORECASE)
_DECODER = json.JSONDecoder()


class NotebookError(Exception):
    """The text is no notebook that can be edited; the message says why."""


class Member(NamedTuple):
    """A key of an object and its value: `start` is where the key begins, `value` where the value does."""

    key: str
    start: int
    value: int
    end: int


class Cell(NamedTuple):
    """A cell and where it stands."""

    start: int
    end: int
    content: dict[str, Any]

    @property
    def id(self) -> str | None:
        found = self.content.get("id")
        return found if isinstance(found, str) else None

    @property
    def kind(self) -> str:
        return str(self.content.get("cell_type", NO_KIND))


@dataclass(frozen=True, slots=True)
class Style:
    """How the notebook is written. `newline` is "" where all stands on one line."""

    newline: str
    unit: str
    comma: str
    colon: str
    ascii_only: bool

    def write(self, value: Any, indent: str | None) -> str:
        """JSON for a value that begins on a line indented so; None: on one line with what is around it."""
        if indent is None or not self.newline:
            return json.dumps(value, ensure_ascii=self.ascii_only, separators=(self.comma, self.colon))
        text = json.dumps(value, ensure_ascii=self.ascii_only, indent=self.unit, separators=(",", self.colon))
        return text.replace("\n", self.newline + indent)


def style_of(text: str, members: Sequence[Member]) -> Style:
    first = members[0]
    gap = gap_before(text, first.start)
    newline = "" if "\n" not in gap else "\r\n" if "\r\n" in gap else "\n"
    colon = text[_key_end(text, first) : first.value]
    between = gap_before(text, members[1].start) if len(members) > 1 else " "
    return Style(
        newline=newline,
        unit=gap.rpartition("\n")[2] if newline else "",
        comma="," + (" " if between and not newline else ""),
        colon=colon if colon in (":", ": ") else ": ",
        ascii_only=text.isascii() and _ESCAPED.search(text) is not None,
    )


def members_of(text: str, start: int) -> tuple[list[Member], int]:
    """The members of the object that begins at `start`, and its end."""
    members: list[Member] = []
    names: set[str] = set()
    at = skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members:
            at = skip(text, _expect(text, at, ","))
        key_start = at
        key, at = scanstring(text, _expect(text, at, '"'), True)
        value = skip(text, _expect(text, skip(text, at), ":"))
        if key in names:
            raise NotebookError(f"it has two keys {key[:80]!r} in one object; it must be put right with Edit first.")
        _, end = _DECODER.raw_decode(text, value)
        if len(names) >= MAX_KEYS:
            raise NotebookError(f"it has an object of more than {MAX_KEYS:,} keys, which no notebook has.")
        names.add(key)
        members.append(Member(key, key_start, value, end))
        at = skip(text, end)
    return members, at + 1


def cells_of(text: str, start: int) -> tuple[tuple[Cell, ...], int]:
    """The cells of the list that begins at `start`, and where its closing bracket is."""
    cells: list[Cell] = []
    at = skip(text, start + 1)
    while text[at : at + 1] != "]":
        if cells:
            at = skip(text, _expect(text, at, ","))
        content, end = _DECODER.raw_decode(text, at)
        if len(cells) >= MAX_CELLS:
            raise NotebookError(f"it has more than {MAX_CELLS:,} cells.")
        if not isinstance(content, dict):
            raise NotebookError(f"its cell {len(cells)} is no object; it must be put right with Edit first.")
        cells.append(Cell(at, end, content))
        at = skip(text, end)
    return tuple(cells), at


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise json.JSONDecodeError(f"expected {char}", text, at)
    return at + 1


def skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def small_number(text: str, member: Member | None) -> int | None:
    value = text[member.value : member.end] if member is not None else ""
    return int(value) if re.fullmatch(r"[0-9]{1,4}", value) else None


def _key_end(text: str, member: Member) -> int:
    end: int = scanstring(text, member.start + 1, True)[1]
    return end


def gap_before(text: str, at: int) -> str:
    """The white space that ends at a place."""
    return text[len(text[:at].rstrip(" \t\n\r")) : at]


def indent_at(text: str, at: int) -> str | None:
    """How the line is indented that begins with what is at a place; None if something stands before it."""
    line = text[text.rfind("\n", 0, at) + 1 : at] if at >= 0 else "?"
    return line if not line.strip(" \t") and text.find("\n", 0, at) >= 0 else None
