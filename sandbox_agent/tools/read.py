"""Read: a file of the container as numbered lines, a picture, a document or a notebook."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import MIB, FileContent
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.file_access import PathText, Place, locate, read
from sandbox_agent.tools.lines import BOM, Page, count_lines, line_start, number_page
from sandbox_agent.tools.notebook import notebook_blocks
from sandbox_agent.tools.pdf import cut_pages
from sandbox_agent.tools.pictures import binary_kind, image_block, image_type, is_pdf, pdf_block
from sandbox_agent.types import PathAccess, Subject, ToolResult

DEFAULT_LINES = 2000
MAX_CHARS = 50_000
WHOLE_BYTES = 32 * MIB
"""A larger text file stays in the container and only the lines asked for are fetched: ten reads at once stay small."""

_SLICE_TIMEOUT_S = 60.0
_SLICE = 'wc -l < "$1" && tail -n "+$2" -- "$1" | head -n "$3" | head -c "$4"'


class ReadInput(ToolInput):
    """See prompts/tools/read.md."""

    file_path: PathText = Field(description="Path of the file; relative paths start at the working directory.")
    offset: Annotated[int, Field(ge=0)] = Field(default=1, description="First line to show, counted from 1.")
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description=f"How many lines to show; {DEFAULT_LINES} if left out."
    )
    pages: str | None = Field(default=None, description='Pages of a PDF, for example "3" or "1-5"; at most 20.')


async def run(value: ReadInput, ctx: ToolContext) -> ToolResult:
    """Show the file.

    Raises:
        ToolError: it is missing, masked, not a regular file, binary, or larger than can be shown.
    """
    place = await locate(ctx, value.file_path)
    content = await read(ctx, place, limit_bytes=WHOLE_BYTES)
    result = await _shown(value, ctx, place, content)
    ctx.known_files[place.resolved] = content.sha256
    return result


async def _shown(value: ReadInput, ctx: ToolContext, place: Place, content: FileContent) -> ToolResult:
    data, path = content.data, place.path
    if is_pdf(data):
        return await _document(value, ctx, place, content)
    if value.pages:
        raise ToolError(f"{path} is not a PDF, so it has no pages. Use offset and limit.")
    if image_type(data) is not None:
        return ToolResult((image_block(path, data, content.size_bytes),), meta={"size_bytes": content.size_bytes})
    kind = binary_kind(data)
    if kind is not None:
        raise ToolError(f"{path} is a binary file ({content.size_bytes:,} bytes), {kind}. It cannot be shown as text.")
    if path.endswith(".ipynb") and value.offset <= 1 and value.limit is None:
        blocks = notebook_blocks(data)
        if blocks is not None:
            return ToolResult(blocks)
    if content.size_bytes > len(data):
        return await _large(value, ctx, place, content)
    return _lines(value, path, data)


def _lines(value: ReadInput, path: str, data: bytes) -> ToolResult:
    if not data.removeprefix(BOM):
        return ToolResult(f"[{path} is empty: {len(data)} bytes, no lines.]", meta={"total_lines": 0})
    first, total = max(value.offset, 1), count_lines(data)
    start = line_start(data, first)
    body = data[start:] if start else data.removeprefix(BOM)
    return _page(value, path, number_page(body, first=first, **_bounds(value)), total)


async def _large(value: ReadInput, ctx: ToolContext, place: Place, content: FileContent) -> ToolResult:
    """Lines of a file that is too large to fetch whole, cut out by the container's own programs."""
    first, bounds = max(value.offset, 1), _bounds(value)
    enough = WHOLE_BYTES // 4
    argv = ["bash", "-c", _SLICE, "bash", place.resolved, str(first), str(bounds["limit"]), str(enough)]
    cut = await ctx.sandbox.exec(argv, timeout_s=_SLICE_TIMEOUT_S, max_output_bytes=2 * enough)
    newlines, _, body = cut.stdout.partition(b"\n")
    if cut.timed_out or not newlines.strip().isdigit():
        raise ToolError(f"{place.path} ({content.size_bytes:,} bytes) is too large for Read here. Use sed -n in Bash.")
    if first == 1:
        body = body.removeprefix(BOM)
    # A last line without line end is not in wc's count; that it is there shows when the page reaches it.
    page = number_page(body, first=first, **bounds)
    total = max(int(newlines), first + page.shown - 1 if page.shown else 0)
    return _page(value, place.path, page, total)


def _bounds(value: ReadInput) -> dict[str, int]:
    return {"limit": value.limit or DEFAULT_LINES, "max_chars": MAX_CHARS}


def _page(value: ReadInput, path: str, page: Page, total: int) -> ToolResult:
    first = max(value.offset, 1)
    if not page.shown:
        return ToolResult(f"[{path} has {total:,} lines; offset {first} is past its end.]", meta={"total_lines": total})
    last = first + page.shown - 1
    notes: list[str] = []
    if last < total:
        why = f" ({MAX_CHARS:,} characters are the most at once)" if page.full else ""
        notes.append(f"Lines {first}-{last} of {total:,}{why}. Go on with offset {last + 1}.")
    if page.clipped:
        numbers = ", ".join(map(str, page.clipped[:5])) + (", ..." if len(page.clipped) > 5 else "")
        notes.append(f"Cut lines: {numbers}. The rest of a line is had with cut -c in Bash, or Grep with -o.")
    if page.replaced:
        notes.append("The file is not valid UTF-8: each \ufffd stands for bytes that could not be shown.")
    text = "\n".join([page.text, *(["", *(f"[{note}]" for note in notes)] if notes else [])])
    return ToolResult(text, meta={"total_lines": total, "first_line": first, "last_line": last})


async def _document(value: ReadInput, ctx: ToolContext, place: Place, content: FileContent) -> ToolResult:
    if value.pages:
        data = await cut_pages(ctx, place, value.pages)
        return ToolResult((pdf_block(place.path, data, len(data)),), meta={"pages": value.pages})
    return ToolResult((pdf_block(place.path, content.data, content.size_bytes),))


def _subject(value: ReadInput, ctx: ToolContext) -> Subject:
    path = ctx.container_path(value.file_path)
    return Subject(summary=path, paths=(PathAccess(path, write=False),))


TOOL = build_tool(
    name="Read",
    description=prompt("tools/read"),
    input_model=ReadInput,
    run=run,
    read_only=True,
    parallel_safe=True,
    subject=_subject,
    # Above what a page can be, so that nothing is cut in the middle of a file without its numbers saying so.
    max_result_chars=MAX_CHARS + 4000,
)
