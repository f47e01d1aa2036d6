"""Where a search starts, and how what it finds is named for the model."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from sandbox_agent.errors import ToolError
from sandbox_agent.sandboxes.base import FileKind
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.file_access import missing


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """`path` as the model knows it, `folder` the resolved directory to search in, `name` the one file in it or ""."""

    path: str
    folder: str
    name: str
    cwd: str

    def shown(self, found: str) -> str:
        """A path found relative to `folder`, relative to the working directory where it lies below that."""
        path = self.path if self.name else posixpath.join(self.path, found)
        below = self.cwd.rstrip("/") + "/"
        return path[len(below) :] if path.startswith(below) else path


async def search_root(ctx: ToolContext, path: str | None) -> SearchRoot:
    """Look where the search is to start.

    Raises:
        ToolError: nothing is there, or neither file nor directory, or it leads elsewhere since the call was judged.
    """
    spelled = ctx.container_path(path or ctx.cwd)
    [info] = await ctx.sandbox.resolve([spelled])
    if ctx.resolved.get(spelled, info.resolved) != info.resolved:
        raise ToolError(f"{spelled} leads to another place now than when this call was judged. Try again.")
    if info.kind is FileKind.MISSING:
        raise ToolError(await missing(ctx, spelled))
    if info.kind is FileKind.DIRECTORY:
        return SearchRoot(spelled, info.resolved, "", ctx.cwd)
    if info.kind is FileKind.FILE:
        folder, name = posixpath.split(info.resolved)
        return SearchRoot(spelled, folder, name, ctx.cwd)
    raise ToolError(f"{spelled} is neither a file nor a directory; it was not opened.")
