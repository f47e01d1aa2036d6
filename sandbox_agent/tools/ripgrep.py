"""ripgrep in the container: its command line, and its output as found lines. Grep decides what the model sees of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sandbox_agent.errors import ToolError
from sandbox_agent.sandboxes.base import MIB, ExecResult
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.globs import compile_glob, expand_braces, matches
from sandbox_agent.tools.search_root import SearchRoot

FILES_ONLY = "--files-with-matches"
TIMEOUT_S = 60.0
MAX_LINE_BYTES = 500
"""Of a found line; rg cuts a longer one with a mark."""

_MAX_OUTPUT_BYTES = 16 * MIB
_MISSING = 127
_ERROR = 2
_IO_FAULT = re.compile(r"\(os error \d+\)\Z")
_NO_LINE_BREAKS = "!*\n*"
"""A line break in a name would split its path in the output, and the rest would look like a path of its own."""

_ALWAYS = "rg --no-config --color never --no-heading --with-filename --null --sort path --hidden --no-require-git"


class Found(NamedTuple):
    """A line of rg's output: `path` relative to the root, `text` the rest. The "--" between groups has the path ""."""

    path: str
    text: str


class Search(NamedTuple):
    """What a search gave. `complete` is False when rg was stopped or said more than is kept."""

    found: list[Found]
    complete: bool
    timed_out: bool
    unreadable: int


async def search(ctx: ToolContext, root: SearchRoot, options: Sequence[str], pattern: str, glob: str | None) -> Search:
    """Run rg below `root` and keep the lines of files that match `glob`.

    A positive glob is never given to rg as one: there it would bring back what .gitignore hides.

    Raises:
        ToolError: rg is not there or refuses the request; the text has its own words.
    """
    wanted = _Filter(root, glob)
    ignoring = [] if root.name else [*wanted.options(options), "--glob", "!.git"]
    if root.withheld is not None:
        ignoring += ["--glob", _NO_LINE_BREAKS]
    argv = [*_ALWAYS.split(), *options, *ignoring, "-e", pattern, "--", f"./{root.name}"]
    try:
        ended = await ctx.sandbox.exec(argv, cwd=root.folder, timeout_s=TIMEOUT_S, max_output_bytes=_MAX_OUTPUT_BYTES)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ToolError(f"{root.path} is gone.") from exc
    except OSError as exc:
        raise ToolError(f"{root.path} cannot be searched: {exc.strerror}.") from exc
    except ValueError as exc:
        raise ToolError(f"The pattern cannot be given to ripgrep: {exc}") from exc
    unreadable = _check(ended)
    lines = _paths(ended) if FILES_ONLY in options else _lines(ended)
    taken = {
        path: wanted.takes(path) and not root.withholds(path) for path in {line.path for line in lines if line.path}
    }
    found = [line for line in lines if not line.path or taken[line.path]]
    return Search(_tidy(found), not ended.truncated and not ended.timed_out, ended.timed_out, unreadable)


class _Filter:
    """Which files a glob means: names at any depth without a slash in it, else paths from the root or from cwd."""

    def __init__(self, root: SearchRoot, glob: str | None) -> None:
        self._root = root
        self._text = glob or ""
        self._negated = self._text.startswith("!")
        positive = self._text.removeprefix("!")
        if positive.endswith("/"):
            positive += "**"
        if "/" not in positive:
            positive = f"**/{positive}"
        try:
            self._glob = compile_glob(positive)
        except ValueError as exc:
            raise ToolError(f"glob {glob!r}: {exc}.") from exc
        self._names = [one.rpartition("/")[2] for one in expand_braces(positive)]

    def options(self, others: Sequence[str]) -> list[str]:
        """What narrows rg's own work: a made-up file type of the names, which leaves ignore rules alone."""
        if not self._text:
            return []
        if self._negated:
            return ["--glob", self._text]
        typed = any(other.startswith("--type=") for other in others)
        if typed or any(name == "**" or set(name) & set(":[\\") for name in self._names):
            return []
        return [*(word for name in self._names for word in ("--type-add", f"sandboxagent:{name}")), "-tsandboxagent"]

    def takes(self, path: str) -> bool:
        if not self._text or self._negated or self._root.name:
            return True
        spellings = {path, self._root.shown(path), f"{self._root.path}/{path}".lstrip("/")}
        return any(matches(self._glob, spelling) for spelling in spellings)


def _check(ended: ExecResult) -> int:
    """How many files could not be read.

    Raises:
        ToolError: rg did not search.
    """
    said = ended.stderr.decode("utf-8", "replace").strip()
    if ended.exit_code == _MISSING:
        raise ToolError("Grep needs ripgrep (rg), and this image does not have it. Use grep in Bash.")
    lines = said.splitlines()
    faults = [line for line in lines if _IO_FAULT.search(line)]
    if ended.exit_code == _ERROR and len(faults) < len(lines):
        text = said.partition("\n\nConsider enabling PCRE2")[0]
        hint = "\nLook-around and back-references work with rg -P in Bash." if text != said else ""
        raise ToolError(f"ripgrep refused the search:\n{text}{hint}")
    return len(faults)


def _whole(ended: ExecResult, end: bytes) -> str:
    """The entries of an output that was cut: only those in its first half are sure to be whole."""
    data = ended.stdout
    if ended.truncated:
        data = data[: data.rfind(end, 0, len(data) // 2) + 1]
    return data.decode("utf-8", "replace")


def _paths(ended: ExecResult) -> list[Found]:
    return [Found(path.removeprefix("./"), "") for path in _whole(ended, b"\0").split("\0") if path]


def _lines(ended: ExecResult) -> list[Found]:
    found: list[Found] = []
    for line in _whole(ended, b"\n").split("\n"):
        path, nul, text = line.partition("\0")
        if nul:
            found.append(Found(path.removeprefix("./"), text.removesuffix("\r")))
        elif line == "--":
            found.append(Found("", line))
        elif line:
            # Such as "binary file matches"; rg puts no NUL there.
            path, _, text = line.partition(": ")
            found.append(Found(path.removeprefix("./"), text))
    return found


def _tidy(found: list[Found]) -> list[Found]:
    """Without separators that have nothing before or behind them, which is so where files were filtered out."""
    tidy: list[Found] = []
    for line in found:
        if line.path or (tidy and tidy[-1].path):
            tidy.append(line)
    while tidy and not tidy[-1].path:
        tidy.pop()
    return tidy
