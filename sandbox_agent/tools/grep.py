"""Grep: a regular expression searched in the files below a place, by ripgrep in the container."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.file_access import PathText
from sandbox_agent.tools.lines import counted, lines_worded
from sandbox_agent.tools.ripgrep import FILES_ONLY, MAX_LINE_BYTES, TIMEOUT_S, Found, Search, search
from sandbox_agent.tools.search_root import SearchRoot, search_root
from sandbox_agent.types import PathAccess, Subject, ToolResult

HEAD_LIMIT = 250
MAX_CHARS = 48_000

Count = Annotated[int, Field(ge=0)]


class GrepInput(ToolInput):
    """See prompts/tools/grep.md. The short names are rg's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)

    pattern: str = Field(description="Regular expression in ripgrep's syntax.")
    path: PathText | None = Field(
        default=None, description="File or directory to search; the working directory if left out."
    )
    glob: str | None = Field(
        default=None, description='Only files that match, for example "*.py", "src/**/*.{ts,tsx}" or "!*.min.js".'
    )
    type: str | None = Field(default=None, description="Only files of this ripgrep type, for example py, js, rust.")
    output_mode: Literal["content", "files_with_matches", "count"] = Field(
        default="files_with_matches", description="Matching lines, paths of files, or matching lines per file."
    )
    before: Count | None = Field(default=None, alias="-B", description="Lines before each match (content).")
    after: Count | None = Field(default=None, alias="-A", description="Lines after each match (content).")
    around: Count | None = Field(default=None, alias="-C", description="Same as context.")
    context: Count | None = Field(default=None, description="Lines before and after each match (content).")
    numbers: bool = Field(default=True, alias="-n", description="Show line numbers (content).")
    ignore_case: bool = Field(default=False, alias="-i", description="Upper and lower case are the same.")
    only_matching: bool = Field(default=False, alias="-o", description="Show only the matched part (content).")
    multiline: bool = Field(default=False, description="Matches may span lines; a dot matches line ends too.")
    head_limit: Count = Field(default=HEAD_LIMIT, description="Show so many lines or paths; 0 is no limit.")
    offset: Count = Field(default=0, description="Leave out so many lines or paths at the start.")
    include_ignored: bool = Field(default=False, description="Search files that .gitignore and the like name, too.")


async def run(value: GrepInput, ctx: ToolContext) -> ToolResult:
    """Search.

    Raises:
        ToolError: the place is not there, or rg refuses pattern, type or glob; the text has rg's own diagnostic.
    """
    root = await search_root(ctx, value.path)
    result = await search(ctx, root, _options(value), value.pattern, value.glob)
    match value.output_mode:
        case "content":
            return _content(value, root, result)
        case "count":
            return _count(value, root, result)
        case "files_with_matches":
            paths = [root.shown(found.path) for found in result.found]
            return _listed(
                value,
                root,
                result,
                paths,
                f"{counted(len(paths), 'file')} {'has' if len(paths) == 1 else 'have'} matches",
            )


def _options(value: GrepInput) -> list[str]:
    options = ["--max-columns", str(MAX_LINE_BYTES), "--max-columns-preview"]
    if value.output_mode == "files_with_matches":
        options.append(FILES_ONLY)
    elif value.output_mode == "count":
        options.append("--count-matches" if value.only_matching else "--count")
    else:
        options += ["--line-number" if value.numbers else "--no-line-number", *_context(value)]
        options += ["--only-matching"] if value.only_matching else []
    options += ["--ignore-case"] if value.ignore_case else []
    options += ["--multiline", "--multiline-dotall"] if value.multiline else []
    options += ["--no-ignore"] if value.include_ignored else []
    options += [f"--type={value.type}"] if value.type else []
    return options


def _context(value: GrepInput) -> list[str]:
    around = value.context if value.context is not None else value.around
    sizes = {"-C": around, "-B": value.before, "-A": value.after}
    return [word for name, size in sizes.items() if size is not None for word in (name, str(size))]


def _content(value: GrepInput, root: SearchRoot, result: Search) -> ToolResult:
    lines = [_line(value, root, found) for found in result.found]
    files = len({found.path for found in result.found if found.path})
    return _listed(value, root, result, lines, f"{lines_worded(len(lines))} in {counted(files, 'file')}")


def _line(value: GrepInput, root: SearchRoot, found: Found) -> str:
    """`path:12:text`, `path-13-text` for context; without the path where one file was asked for."""
    if not found.path or root.name:
        return found.text
    separator = found.text.lstrip("0123456789")[:1] if value.numbers else ":"
    return f"{root.shown(found.path)}{separator if separator in ('-', ':') else ':'}{found.text}"


def _count(value: GrepInput, root: SearchRoot, result: Search) -> ToolResult:
    total = sum(int(found.text) for found in result.found if found.text.isdigit())
    lines = [f"{root.shown(found.path)}:{found.text}" for found in result.found]
    what = counted(total, "match", "matches") if value.only_matching else counted(total, "matching line")
    return _listed(value, root, result, lines, f"{what} in {counted(len(lines), 'file')}", always=True)


def _listed(
    value: GrepInput, root: SearchRoot, result: Search, lines: list[str], total: str, *, always: bool = False
) -> ToolResult:
    """The lines asked for, and in brackets what the model must know about the rest."""
    shown = _page(value, lines)
    last = value.offset + len(shown)
    least = "" if result.complete else "at least "
    notes: list[str] = []
    if shown and (last < len(lines) or value.offset):
        notes.append(f"{value.offset + 1}-{last} of {least}{total}." + _go_on(last, len(lines)))
    elif always and lines:
        notes.append(f"{least}{total}.".capitalize())
    elif not shown and lines:
        notes.append(f"Nothing at offset {value.offset}: there {'is' if len(lines) == 1 else 'are'} {least}{total}.")
    if not lines:
        notes.append(_nothing(value, root))
    if result.timed_out:
        notes.append(f"The search was stopped after {TIMEOUT_S:g} s: this is not all. Narrow path, glob or type.")
    elif not result.complete:
        notes.append("There was more output than is kept: this is not all. Narrow path, glob or type.")
    if result.unreadable:
        notes.append(f"{counted(result.unreadable, 'file or directory', 'files or directories')} could not be read.")
    if root.withheld_note is not None:
        notes.append(root.withheld_note)
    text = "\n".join([*shown, *([""] if shown and notes else []), *(f"[{note}]" for note in notes)])
    meta = {"total": len(lines), "truncated": last < len(lines) or not result.complete}
    return ToolResult(text, meta=meta)


def _page(value: GrepInput, lines: list[str]) -> list[str]:
    """From offset, up to head_limit and up to `MAX_CHARS`."""
    end = value.offset + value.head_limit if value.head_limit else len(lines)
    page: list[str] = []
    chars = 0
    for line in lines[value.offset : end]:
        chars += len(line) + 1
        if chars > MAX_CHARS and page:
            break
        page.append(line)
    return page


def _go_on(last: int, total: int) -> str:
    return f" Go on with offset {last}." if last < total else ""


def _nothing(value: GrepInput, root: SearchRoot) -> str:
    text = f"No matches in {root.path}."
    if value.include_ignored or root.name:
        return text
    return f"{text} Files that .gitignore and the like name were not searched; include_ignored searches them too."


def _subject(value: GrepInput, ctx: ToolContext) -> Subject:
    path = ctx.container_path(value.path or ctx.cwd)
    return Subject(summary=f"{value.pattern} in {path}", paths=(PathAccess(path, write=False),))


TOOL = build_tool(
    name="Grep",
    description=prompt("tools/grep"),
    input_model=GrepInput,
    run=run,
    read_only=True,
    parallel_safe=True,
    subject=_subject,
)
