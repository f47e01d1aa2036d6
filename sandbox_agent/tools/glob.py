"""Glob: the newest files whose paths match a pattern."""

from __future__ import annotations

import posixpath
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.file_access import PathText
from sandbox_agent.tools.globs import compile_glob
from sandbox_agent.tools.lines import counted
from sandbox_agent.tools.search_root import SearchRoot, search_root
from sandbox_agent.types import PathAccess, Subject, ToolResult

LIMIT = 100
_UNCHECKED_LIMIT = 20_000
"""How many of the newest are looked at where rules may take some away."""

_WALK_S = 20.0
_TIMEOUT_S = 30.0
_MISSING = 127
_MAGIC = frozenset("*?[{")


class GlobInput(ToolInput):
    """See prompts/tools/glob.md."""

    pattern: PathText = Field(description='For example "**/*.py" or "src/**/*.{ts,tsx}".')
    path: PathText | None = Field(default=None, description="Directory to search; the working directory if left out.")


async def run(value: GlobInput, ctx: ToolContext) -> ToolResult:
    """List the files.

    Raises:
        ToolError: the directory is not there, the pattern is not usable, or the search failed.
    """
    base, pattern = _split(value)
    if ".." in pattern.split("/"):
        raise ToolError(f'pattern {value.pattern!r}: ".." is only usable before the first wildcard.')
    root = await search_root(ctx, base)
    if root.name:
        raise ToolError(f"{root.path} is a file, not a directory to search in.")
    try:
        compile_glob(pattern)
    except ValueError as exc:
        raise ToolError(f"pattern {value.pattern!r}: {exc}.") from exc
    limit = LIMIT if root.withheld is None else _UNCHECKED_LIMIT
    argv = ["python3", "-I", "-S", "-c", _program(), root.folder, pattern, str(limit), str(_WALK_S)]
    if ctx.by_name:
        argv.append("name")
    ended = await ctx.sandbox.exec(argv, cwd="/", timeout_s=_TIMEOUT_S)
    which = "first" if ctx.by_name else "newest"
    return _result(value, root, pattern, _shown(_listing(ended, limit), root), which)


def _split(value: GlobInput) -> tuple[str | None, str]:
    """Directories without magic at the start of the pattern belong to the place to search: less to walk, and an
    absolute pattern or one with `..` becomes an ordinary one."""
    parts = value.pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC & set(parts[fixed]):
        fixed += 1
    prefix = "/".join(parts[:fixed]) or ("/" if fixed else "")
    rest = "/".join(parts[fixed:]) or "*"
    if not prefix:
        return value.path, rest
    return posixpath.join(value.path or "", prefix), rest


@cache
def _program() -> str:
    return Path(__file__).with_name("globs.py").read_text(encoding="utf-8")


class _Listing(NamedTuple):
    total: int
    complete: bool
    unreadable: int
    paths: list[str]


def _listing(ended: ExecResult, limit: int) -> _Listing:
    """What the walk printed, as data that is not trusted: it comes out of the container.

    Raises:
        ToolError: it is not what the walk prints.
    """
    if ended.exit_code == _MISSING:
        raise ToolError("Glob needs python3, and this image does not have it. Use find in Bash.")
    if ended.truncated:
        raise ToolError("The list of files is too long. Narrow path or pattern.")
    try:
        total, complete, unreadable, *paths = ended.stdout.decode("utf-8", "replace").split("\0")[:-1]
        return _Listing(int(total), complete == "1", int(unreadable), paths[:limit])
    except ValueError as exc:
        said = ended.stderr.decode("utf-8", "replace").strip()[-500:]
        why = f"it took longer than {_TIMEOUT_S:g} s" if ended.timed_out else said or "no listing came"
        raise ToolError(f"The files could not be listed: {why}") from exc


def _shown(listing: _Listing, root: SearchRoot) -> _Listing:
    """The listing without what must not be shown; those not looked at stay in the total."""
    paths = [path for path in listing.paths if not root.withholds(path)]
    total = listing.total - len(listing.paths) + len(paths)
    return listing._replace(total=total, paths=paths[:LIMIT])


def _result(value: GlobInput, root: SearchRoot, pattern: str, listing: _Listing, which: str) -> ToolResult:
    shown = [root.shown(path) for path in listing.paths]
    total, complete = listing.total, listing.complete
    notes: list[str] = []
    if total > len(shown):
        least = "" if complete else "at least "
        notes.append(f"The {len(shown)} {which} of {least}{total:,} files. Narrow the pattern to see others.")
    if not complete:
        notes.append(f"The search was stopped after {_WALK_S:g} s: files are missing. Narrow path or pattern.")
    if listing.unreadable:
        notes.append(f"{counted(listing.unreadable, 'directory', 'directories')} could not be read.")
    if root.withheld_note is not None:
        notes.append(root.withheld_note)
    if not shown:
        where = "itself" if "/" not in pattern and "**" not in pattern else "or below"
        hint = f' For all levels use "**/{pattern}".' if where == "itself" else ""
        notes.insert(0, f"No files match {value.pattern!r} in {root.path} {where}.{hint}")
    text = "\n".join([*shown, *([""] if shown and notes else []), *(f"[{note}]" for note in notes)])
    meta = {"total": total, "truncated": total > len(shown) or not complete}
    return ToolResult(text, meta=meta)


def _subject(value: GlobInput, ctx: ToolContext) -> Subject:
    base, _ = _split(value)
    path = ctx.container_path(base or ctx.cwd)
    return Subject(summary=f"{value.pattern} in {path}", paths=(PathAccess(path, write=False),))


TOOL = build_tool(
    name="Glob",
    description=prompt("tools/glob"),
    input_model=GlobInput,
    run=run,
    read_only=True,
    parallel_safe=True,
    subject=_subject,
)
