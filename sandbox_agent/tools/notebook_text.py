"""A notebook's JSON as text with known places: a cell is changed by cutting and pasting, so every other byte stays.

What is put in looks like what is around it: indentation, line ends, escapes, the order of keys. Pure; no file is
touched here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sandbox_agent.tools.notebook_json import (
    Cell,
    Member,
    NotebookError,
    Style,
    cells_of,
    gap_before,
    indent_at,
    members_of,
    skip,
    small_number,
    style_of,
)

_BOM = "\ufeff"
_FORMAT = 4
_ID_SINCE_MINOR = 5
_ID_CHARS = 8
_LISTED_CELLS = 20
_ONLY_CODE: dict[str, Any] = {"execution_count": None, "outputs": []}
"""What a code cell has and others have not, as it is before it ever ran."""


class Change(NamedTuple):
    """What goes in place of a piece of the text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook of format 4. `opening` and `closing` are the places of the brackets around its cells."""

    text: str
    cells: tuple[Cell, ...]
    opening: int
    closing: int
    minor: int
    style: Style

    def find(self, cell_id: str) -> int:
        """The number of a cell, counted from 0: by its id, or as `cell-3`, `cell 3` or `3`.

        Raises:
            NotebookError: there is none, or several have this id.
        """
        found = [number for number, cell in enumerate(self.cells) if cell.id == cell_id]
        if len(found) > 1:
            numbers = ", ".join(f"cell-{number}" for number in found)
            raise NotebookError(f"{len(found)} cells have the id {cell_id!r}; name one of them as {numbers}.")
        if found:
            return found[0]
        by_number = re.fullmatch(r"(?:cell[- ])?([0-9]{1,9})", cell_id)
        if by_number is not None and int(by_number[1]) < len(self.cells):
            return int(by_number[1])
        shown = [(cell.id or f"cell-{number}")[:80] for number, cell in enumerate(self.cells[:_LISTED_CELLS])]
        there, more = ", ".join(shown), ", ..." if len(self.cells) > _LISTED_CELLS else ""
        raise NotebookError(f"it has no cell {cell_id[:80]!r}; its cells are: {there + more if there else '(none)'}.")

    def replaced(self, number: int, source: str, kind: str) -> str:
        """The text with another source in a cell, which becomes of that kind. A code cell loses its outputs: they are
        of the old source.

        Raises:
            NotebookError: what the cell has cannot be in a cell of that kind, or it lacks what every cell has.
        """
        cell = self.cells[number]
        if not {"cell_type", "source"} <= set(cell.content):
            raise NotebookError(
                f"its cell {number} has no cell_type or no source; it must be put right with Edit first."
            )
        if kind == "code" and cell.content.get("attachments"):
            raise NotebookError("it has attachments, which a code cell cannot have. Insert a new cell instead.")
        members, _ = members_of(self.text, cell.start)
        wanted: dict[str, Any] = {"cell_type": kind, "source": _source(source, cell.content.get("source"))}
        unwanted = set() if kind == cell.kind else {"attachments"}
        if kind == "code":
            wanted |= _ONLY_CODE
        else:
            unwanted |= set(_ONLY_CODE)
        changes: list[Change] = []
        for member in members:
            if member.key in wanted:
                value = wanted.pop(member.key)
                if cell.content[member.key] != value:
                    changes.append(Change(member.value, member.end, self._value(member.start, value)))
        changes += _removals(members, unwanted)
        kept = [member for member in members if member.key not in unwanted]
        changes += [self._added(kept, key, value) for key, value in sorted(wanted.items(), reverse=True)]
        return _changed(self.text, changes)

    def inserted(self, number: int, source: str, kind: str) -> tuple[str, str | None]:
        """The text with a new cell that gets this number, and the new cell's id, None where cells have none."""
        like = self.cells[min(number, len(self.cells) - 1)] if self.cells else None
        new: dict[str, Any] = {"cell_type": kind, "metadata": {}}
        new["source"] = _source(source, like.content.get("source") if like else None)
        if kind == "code":
            new |= _ONLY_CODE
        ident = None
        if self.minor >= _ID_SINCE_MINOR or (like is not None and like.id is not None):
            new["id"] = ident = self._fresh_id(number, source)
        if like is None:
            return self._first(new), ident
        order = list(like.content)
        keys = sorted(new, key=lambda key: (order.index(key) if key in order else len(order), key))
        ordered = {key: new[key] for key in (sorted(new) if order == sorted(order) else keys)}
        spread = "\n" in self.text[like.start : like.end]
        cell = self.style.write(ordered, indent_at(self.text, like.start) if spread else None)
        if number == 0:
            return _changed(self.text, [Change(like.start, like.start, f"{cell},{self._gap()}")]), ident
        end = self.cells[number - 1].end
        return _changed(self.text, [Change(end, end, f",{self._gap()}{cell}")]), ident

    def deleted(self, number: int) -> str:
        """The text without a cell."""
        cell, last = self.cells[number], len(self.cells) - 1
        if last == 0:
            return _changed(self.text, [Change(self.opening + 1, self.closing, "")])
        if number < last:
            return _changed(self.text, [Change(cell.start, self.cells[number + 1].start, "")])
        return _changed(self.text, [Change(self.cells[number - 1].end, cell.end, "")])

    def _value(self, start: int, value: Any) -> str:
        """A value as it is written behind a key that begins at `start`."""
        return self.style.write(value, indent_at(self.text, start))

    def _added(self, members: Sequence[Member], key: str, value: Any) -> Change:
        """A member put among others: where its name belongs if they are sorted, else behind them."""
        names = [member.key for member in members]
        later = next((member for member in members if member.key > key), None) if names == sorted(names) else None
        behind = later or members[-1]
        text = json.dumps(key) + self.style.colon + self._value(behind.start, value)
        gap = gap_before(self.text, behind.start)
        if later is not None:
            return Change(later.start, later.start, f"{text},{gap}")
        return Change(behind.end, behind.end, f",{gap}{text}")

    def _first(self, new: dict[str, Any]) -> str:
        """The text with the only cell."""
        outer = indent_at(self.text, self.text.rfind('"cells"', 0, self.opening))
        new = dict(sorted(new.items()))
        if outer is None or not self.style.newline:
            return _changed(self.text, [Change(self.opening + 1, self.closing, self.style.write(new, None))])
        inner = outer + self.style.unit
        cell = f"{self.style.newline}{inner}{self.style.write(new, inner)}{self.style.newline}{outer}"
        return _changed(self.text, [Change(self.opening + 1, self.closing, cell)])

    def _gap(self) -> str:
        """What stands between the comma behind a cell and the next one."""
        if len(self.cells) > 1:
            return gap_before(self.text, self.cells[1].start)
        return gap_before(self.text, self.cells[0].start) or self.style.comma.removeprefix(",")

    def _fresh_id(self, number: int, source: str) -> str:
        """An id that no cell has; the same call on the same notebook gets the same, so that a run can be repeated."""
        taken = {cell.id for cell in self.cells}
        seed = f"{number}\0{len(self.cells)}\0{source}"
        while True:
            seed = hashlib.sha256(seed.encode()).hexdigest()
            if seed[:_ID_CHARS] not in taken:
                return seed[:_ID_CHARS]


def parse(data: bytes) -> Notebook:
    """The notebook that a file holds.

    Raises:
        NotebookError: it is no JSON, no notebook, of another format than 4, or two of its keys have one name.
    """
    try:
        text = data.decode("utf-8")
        return _parsed(text)
    except UnicodeDecodeError as exc:
        raise NotebookError(f"it is not UTF-8 text (byte {exc.start}), so it is no notebook.") from exc
    except json.JSONDecodeError as exc:
        raise NotebookError(f"it is not valid JSON (line {exc.lineno}, column {exc.colno}: {exc.msg}).") from exc
    except (RecursionError, ValueError) as exc:
        raise NotebookError(
            "its JSON cannot be used: it is nested too deeply, or has a number that is too long."
        ) from exc


def _parsed(text: str) -> Notebook:
    start = skip(text, len(_BOM) if text.startswith(_BOM) else 0)
    if text[start : start + 1] != "{":
        raise json.JSONDecodeError("expected an object", text, start)
    members, end = members_of(text, start)
    if skip(text, end) != len(text):
        raise json.JSONDecodeError("extra data", text, skip(text, end))
    places = {member.key: member for member in members}
    values = {key: small_number(text, places.get(key)) for key in ("nbformat", "nbformat_minor")}
    if "worksheets" in places or values["nbformat"] != _FORMAT:
        found = f"format {values['nbformat']}" if values["nbformat"] else "a format that it does not name"
        raise NotebookError(
            f"it is a notebook of {found}, and only format {_FORMAT} can be edited. Convert it with `jupyter nbconvert "
            "--to notebook`, or change its JSON with Edit."
        )
    if "cells" not in places or text[places["cells"].value] != "[":
        raise NotebookError("it has no list of cells, so it is no notebook.")
    cells, closing = cells_of(text, places["cells"].value)
    return Notebook(text, cells, places["cells"].value, closing, values["nbformat_minor"] or 0, style_of(text, members))


def _source(source: str, like: object) -> str | list[str]:
    """A source as the cell beside it has it: a text, or (as usual) a list of lines with their ends."""
    if isinstance(like, str):
        return source
    return [line for line in re.split(r"(?<=\n)", source) if line]


def _removals(members: Sequence[Member], unwanted: Iterable[str]) -> list[Change]:
    """Cuts of members together with one comma each."""
    gone = set(unwanted)
    kept = [number for number, member in enumerate(members) if member.key not in gone]
    changes: list[Change] = []
    for number, member in enumerate(members):
        if member.key not in gone:
            continue
        if any(other > number for other in kept):
            changes.append(Change(member.start, members[number + 1].start, ""))
        else:
            changes.append(Change(members[number - 1].end, member.end, ""))
    return changes


def _changed(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes made; none overlap."""
    for change in sorted(changes, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text
