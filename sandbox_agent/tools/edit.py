"""Edit: one exact text of a file for another, on its bytes, in one compare-and-swap."""

from __future__ import annotations

import hashlib
import json

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import FileChangedError, FileContent
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.changes import unified_diff
from sandbox_agent.tools.file_access import PathText, Place, explain, locate, read
from sandbox_agent.tools.lines import line_number
from sandbox_agent.tools.nearest import lines_near, nearest_lines
from sandbox_agent.tools.splice import MAX_COUNTED, Span, find, find_apart, splice
from sandbox_agent.tools.write import DIFFED_BYTES
from sandbox_agent.types import PathAccess, Subject, ToolResult

_LISTED_MATCHES = 20
MAX_REPLACED = 200_000
"""Matches at once: each costs memory on the host, and a file can be one letter over and over."""


class EditInput(ToolInput):
    """See prompts/tools/edit.md."""

    file_path: PathText = Field(description="Path of the file.")
    old_string: str = Field(description="The exact text to replace.")
    new_string: str = Field(description="What to put in its place; must differ.")
    replace_all: bool = Field(default=False, description="Replace every occurrence instead of the only one.")


async def run(value: EditInput, ctx: ToolContext) -> ToolResult:
    """Change the file.

    Raises:
        ToolError: the text is not there, there more than once, the file was not read or changed, or cannot be
            written. Nothing was changed then. The same call failing again says so.
    """
    key = _digest(value, ctx)
    try:
        result = await _edit(value, ctx)
    except ToolError as exc:
        ctx.failed_edits[key] = times = ctx.failed_edits.get(key, 0) + 1
        if times == 1:
            raise
        raise ToolError(
            f"This same call already failed ({times} times now) and nothing was changed. Sending it again will not "
            f"help: read the file and use the text that is there. The reason this time: {exc}"
        ) from exc
    ctx.failed_edits.pop(key, None)
    return result


async def _edit(value: EditInput, ctx: ToolContext) -> ToolResult:
    if value.old_string == value.new_string:
        raise ToolError("old_string and new_string are the same: there is nothing to change.")
    place = await locate(ctx, value.file_path)
    if not value.old_string:
        return await _create(value, ctx, place)
    content = await read(ctx, place)
    _check_known(value, ctx, place, content)
    old, new = value.old_string.encode("utf-8"), value.new_string.encode("utf-8")
    spans = _matches(value, place, content.data, old)
    _check_encoding(value, place, content.data)
    after = splice(content.data, spans, old, new)
    if after == content.data:
        raise ToolError(f"{place.path} would stay as it is: the texts differ only in line ends, which follow the file.")
    await _swap(value, ctx, place, after, content.sha256)
    lines = _numbers(content.data, spans)
    many = f"{len(spans)} occurrences, in lines" if len(spans) > 1 else "1 occurrence, in line"
    diff = unified_diff(place.path, content.data, after) if len(after) <= DIFFED_BYTES else ""
    meta = {"diff": diff, "changed": [place.resolved], "replaced": len(spans)}
    return ToolResult(f"Updated {place.path}: replaced {many} {lines}.", meta=meta)


async def _create(value: EditInput, ctx: ToolContext, place: Place) -> ToolResult:
    data = value.new_string.encode("utf-8")
    try:
        written = await ctx.sandbox.replace_file(place.path, data, expected_sha256=None, resolved=place.resolved)
    except FileChangedError as exc:
        raise ToolError(
            f"{place.path} is already there, so an empty old_string is not usable: give the text to replace, or use "
            "Write for the whole file."
        ) from exc
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc
    ctx.known_files[place.resolved] = written.sha256
    meta = {"diff": unified_diff(place.path, b"", data), "changed": [place.resolved], "created": True}
    return ToolResult(f"Created {place.path} ({len(data):,} bytes).", meta=meta)


def _check_known(value: EditInput, ctx: ToolContext, place: Place, content: FileContent) -> None:
    known = ctx.known_files.get(place.resolved)
    if known is None:
        raise ToolError(f"You have not read {place.path} yet. Read it first; nothing was changed.")
    if known != content.sha256:
        raise ToolError(_stale(value, place.path, content.data))


def _stale(value: EditInput, path: str, data: bytes) -> str:
    return (
        f"{path} has changed since you last saw it, so nothing was changed. Read it again before editing. "
        f"Near the target it now has:\n{lines_near(data, value.old_string)}"
    )


def _matches(value: EditInput, place: Place, data: bytes, old: bytes) -> list[Span]:
    spans = find_apart(data, old, at_most=MAX_REPLACED + 1) if value.replace_all else find(data, old)
    if not spans:
        raise ToolError(_not_found(value, place.path, data))
    if len(spans) > MAX_REPLACED:
        raise ToolError(
            f"old_string occurs more than {MAX_REPLACED:,} times in {place.path}; nothing was changed. Use sed in Bash."
        )
    if len(spans) > 1 and not value.replace_all:
        raise ToolError(
            f"old_string occurs {_many(spans)} times in {place.path}, in lines {_numbers(data, spans)}; nothing was "
            "changed. Add neighbouring lines until it is unique, or set replace_all."
        )
    return spans


def _many(spans: list[Span]) -> str:
    return f"{len(spans)}" if len(spans) < MAX_COUNTED else f"at least {len(spans):,}"


def _not_found(value: EditInput, path: str, data: bytes) -> str:
    notes = [f"old_string is not in {path}; nothing was changed."]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        notes.append("The file is UTF-16 text, which Edit cannot match; convert it with iconv in Bash.")
    if "\ufffd" in value.old_string:
        notes.append("Each \ufffd that Read shows stands for other bytes: choose a text without it.")
    if path.endswith(".ipynb"):
        notes.append(
            "Edit works on the raw JSON of a notebook, not on the cells Read shows: use NotebookEdit for those, or "
            "Read it with offset 1 and a limit to see that text."
        )
    near = nearest_lines(data, value.old_string)
    return " ".join(notes) + (f"\n{near}" if near else " No line of the file is like it.")


def _check_encoding(value: EditInput, place: Place, data: bytes) -> None:
    """UTF-8 bytes must not get into a file of another encoding; what already matched there may stay."""
    strange = sorted({c for c in value.new_string if ord(c) > 127} - set(value.old_string))
    if not strange:
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ToolError(
            f"{place.path} is not UTF-8 (byte {exc.start}) and its encoding is not known, so "
            f"{', '.join(strange[:10])} cannot be written into it. Use ASCII, or convert the file with iconv in Bash."
        ) from exc


async def _swap(value: EditInput, ctx: ToolContext, place: Place, after: bytes, expected_sha256: str) -> None:
    try:
        written = await ctx.sandbox.replace_file(
            place.path, after, expected_sha256=expected_sha256, resolved=place.resolved
        )
    except (FileChangedError, FileNotFoundError) as exc:
        # Never tried again here: what is there now is not what the model decided about.
        raise ToolError(f"{place.path} was changed by something else meanwhile; nothing was written. Read it.") from exc
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc
    ctx.known_files[place.resolved] = written.sha256


def _numbers(data: bytes, spans: list[Span]) -> str:
    numbers = [str(line_number(data, span.start)) for span in spans[:_LISTED_MATCHES]]
    return ", ".join(numbers) + (", ..." if len(spans) > _LISTED_MATCHES else "")


def _digest(value: EditInput, ctx: ToolContext) -> str:
    parts = [ctx.container_path(value.file_path), value.old_string, value.new_string, value.replace_all]
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()


def _subject(value: EditInput, ctx: ToolContext) -> Subject:
    path = ctx.container_path(value.file_path)
    every = " (every occurrence)" if value.replace_all else ""
    return Subject(summary=f"{path}{every}", paths=(PathAccess(path, write=True),))


TOOL = build_tool(
    name="Edit",
    description=prompt("tools/edit"),
    input_model=EditInput,
    run=run,
    edits=True,
    subject=_subject,
)
