"""NotebookEdit: one cell of a Jupyter notebook replaced, inserted or deleted, in one compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import anyio.to_thread
from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import MIB, FileChangedError, FileContent
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.changes import unified_diff
from sandbox_agent.tools.file_access import PathText, Place, explain, locate, read
from sandbox_agent.tools.notebook_json import NO_KIND, NotebookError
from sandbox_agent.tools.notebook_text import Notebook, parse
from sandbox_agent.tools.write import DIFFED_BYTES
from sandbox_agent.types import PathAccess, Subject, ToolResult

MAX_BYTES = 32 * MIB
"""What is read to be edited; it takes several times as much memory meanwhile."""

SUFFIX = ".ipynb"


class NotebookEditInput(ToolInput):
    """See prompts/tools/notebook_edit.md."""

    notebook_path: PathText = Field(description="Path of the notebook.")
    cell_id: str | None = Field(
        default=None,
        description="The cell, as Read names it: its id, or cell-N counted from 0. The new one goes behind.",
    )
    new_source: str | None = Field(default=None, description="The whole new source of the cell.")
    cell_type: Literal["code", "markdown"] | None = Field(
        default=None, description="Kind of the cell; needed to insert one, else it stays."
    )
    edit_mode: Literal["replace", "insert", "delete"] = Field(default="replace")


class Edited(NamedTuple):
    """The notebook's new text, and what to tell of it."""

    text: str
    said: str


async def run(value: NotebookEditInput, ctx: ToolContext) -> ToolResult:
    """Change the notebook.

    Raises:
        ToolError: there is no such cell, the file was not read or changed, is no notebook that can be edited, or
            cannot be written. Nothing was changed then.
    """
    act = _act(value)
    if not value.notebook_path.endswith(SUFFIX):
        raise ToolError(f"{value.notebook_path} is no {SUFFIX} file. Use Edit for other files; nothing was changed.")
    place = await locate(ctx, value.notebook_path)
    content = await read(ctx, place, limit_bytes=MAX_BYTES)
    _check_known(ctx, place, content)
    try:
        edited = await anyio.to_thread.run_sync(partial(_edited, act, content.data))
    except NotebookError as exc:
        raise ToolError(f"{place.path} was not changed: {exc}") from exc
    data = edited.text.encode("utf-8")
    if data == content.data:
        raise ToolError(f"{place.path} would stay as it is: the cell has this source and kind already.")
    await _swap(ctx, place, data, content.sha256)
    diff = unified_diff(place.path, content.data, data) if len(data) <= DIFFED_BYTES else ""
    return ToolResult(f"{edited.said} in {place.path}.", meta={"diff": diff, "changed": [place.resolved]})


def _act(value: NotebookEditInput) -> Callable[[Notebook], Edited]:
    """What is to be done.

    Raises:
        ToolError: a field that it needs is missing.
    """
    if value.edit_mode == "delete":
        return partial(_delete, _named(value))
    if value.new_source is None:
        raise ToolError(f"new_source is missing: edit_mode {value.edit_mode} needs the whole source of the cell.")
    if value.edit_mode == "replace":
        return partial(_replace, _named(value), value.new_source, value.cell_type)
    if value.cell_type is None:
        raise ToolError("cell_type is missing: say whether the new cell is code or markdown.")
    return partial(_insert, value.cell_id, value.new_source, value.cell_type)


def _named(value: NotebookEditInput) -> str:
    if value.cell_id is None:
        raise ToolError(f"cell_id is missing: say which cell to {value.edit_mode}. Read names them.")
    return value.cell_id


def _edited(act: Callable[[Notebook], Edited], data: bytes) -> Edited:
    return act(parse(data))


def _replace(cell_id: str, source: str, kind: str | None, notebook: Notebook) -> Edited:
    number = notebook.find(cell_id)
    cell = notebook.cells[number]
    if kind is None and cell.kind not in ("code", "markdown", "raw", NO_KIND):
        raise NotebookError(f"its cell {number} is of the kind {cell.kind[:40]!r}; give a cell_type.")
    text = notebook.replaced(number, source, kind or cell.kind)
    became = f", now {kind}" if kind not in (None, cell.kind) else ""
    outputs = cell.content.get("outputs")
    lost = f" without the {len(outputs)} outputs of its old source" if isinstance(outputs, list) and outputs else ""
    return Edited(text, f"Replaced the source of cell {number}{_ident(cell.id)}{became}{lost}")


def _insert(cell_id: str | None, source: str, kind: str, notebook: Notebook) -> Edited:
    number = 0 if cell_id is None else notebook.find(cell_id) + 1
    text, ident = notebook.inserted(number, source, kind)
    return Edited(text, f"Inserted a {kind} cell as cell {number}{_ident(ident)}")


def _delete(cell_id: str, notebook: Notebook) -> Edited:
    number = notebook.find(cell_id)
    text = notebook.deleted(number)
    return Edited(text, f"Deleted cell {number}{_ident(notebook.cells[number].id)}; later cells count one less")


def _ident(cell_id: str | None) -> str:
    return f" (id {cell_id[:80]})" if cell_id is not None else ""


def _check_known(ctx: ToolContext, place: Place, content: FileContent) -> None:
    if content.size_bytes > MAX_BYTES:
        raise ToolError(
            f"{place.path} has {content.size_bytes:,} bytes, and {MAX_BYTES:,} is the most here; nothing "
            "was changed. Clear its outputs with a program in Bash first."
        )
    known = ctx.known_files.get(place.resolved)
    if known is None:
        raise ToolError(f"You have not read {place.path} yet. Read it first; nothing was changed.")
    if known != content.sha256:
        raise ToolError(f"{place.path} has changed since you last saw it, so nothing was changed. Read it again.")


async def _swap(ctx: ToolContext, place: Place, data: bytes, expected_sha256: str) -> None:
    try:
        written = await ctx.sandbox.replace_file(
            place.path, data, expected_sha256=expected_sha256, resolved=place.resolved
        )
    except (FileChangedError, FileNotFoundError) as exc:
        raise ToolError(f"{place.path} was changed by something else meanwhile; nothing was written. Read it.") from exc
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc
    ctx.known_files[place.resolved] = written.sha256


def _subject(value: NotebookEditInput, ctx: ToolContext) -> Subject:
    path = ctx.container_path(value.notebook_path)
    cell = f" {value.cell_id}" if value.cell_id is not None else ""
    return Subject(summary=f"{path} ({value.edit_mode}{cell})", paths=(PathAccess(path, write=True),))


TOOL = build_tool(
    name="NotebookEdit",
    description=prompt("tools/notebook_edit"),
    input_model=NotebookEditInput,
    run=run,
    edits=True,
    subject=_subject,
)
