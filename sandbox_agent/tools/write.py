"""Write: a whole file, new or known to the model as it is."""

from __future__ import annotations

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import FileChangedError
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.changes import unified_diff
from sandbox_agent.tools.file_access import PathText, Place, explain, locate
from sandbox_agent.tools.lines import count_lines, lines_worded
from sandbox_agent.types import PathAccess, Subject, ToolResult

DIFFED_BYTES = 4 * 1024 * 1024
"""A larger file is written without a diff for people."""


class WriteInput(ToolInput):
    """See prompts/tools/write.md."""

    file_path: PathText = Field(description="Path of the file; parents are made.")
    content: str = Field(description="The whole new content.")


async def run(value: WriteInput, ctx: ToolContext) -> ToolResult:
    """Write the file.

    Raises:
        ToolError: an existing file was not read, or changed since; or it cannot be written.
    """
    place = await locate(ctx, value.file_path)
    data = value.content.encode("utf-8")
    before = await _known_content(ctx, place)
    try:
        written = await ctx.sandbox.replace_file(
            place.path,
            data,
            expected_sha256=None if before is None else ctx.known_files[place.resolved],
            resolved=place.resolved,
        )
    except FileChangedError as exc:
        raise ToolError(_changed(place.path)) from exc
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc
    ctx.known_files[place.resolved] = written.sha256
    verb = "Created" if before is None else "Updated"
    diff = unified_diff(place.path, before or b"", data) if len(data) + len(before or b"") < DIFFED_BYTES else ""
    text = f"{verb} {place.path} ({lines_worded(count_lines(data))}, {len(data):,} bytes)."
    return ToolResult(text, meta={"diff": diff, "changed": [place.resolved], "created": before is None})


async def _known_content(ctx: ToolContext, place: Place) -> bytes | None:
    """The content that is there, None if no file is. Whether it is the known one the swap finds out.

    Raises:
        ToolError: there is one that the model has not seen.
    """
    try:
        there = await ctx.sandbox.read_file(place.path, limit_bytes=DIFFED_BYTES, resolved=place.resolved)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc
    if place.resolved not in ctx.known_files:
        raise ToolError(
            f"{place.path} is already there and you have not read it. Read it first; nothing was written. "
            "(To replace a file that Read cannot show, remove it with Bash first.)"
        )
    return there.data


def _changed(path: str) -> str:
    return f"{path} has changed since you last saw it, so nothing was written. Read it again, then decide."


def _subject(value: WriteInput, ctx: ToolContext) -> Subject:
    path = ctx.container_path(value.file_path)
    lines = lines_worded(count_lines(value.content.encode()))
    return Subject(summary=f"{path} ({lines})", paths=(PathAccess(path, True),))


TOOL = build_tool(
    name="Write",
    description=prompt("tools/write"),
    input_model=WriteInput,
    run=run,
    edits=True,
    subject=_subject,
)
