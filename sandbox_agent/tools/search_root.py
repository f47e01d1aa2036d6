"""Where a search starts, and how what it finds is named for the model."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from sandbox_agent.errors import ToolError
from sandbox_agent.sandboxes.base import FileKind
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.file_access import missing
from sandbox_agent.types import Withheld


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """`path` as the model knows it, `folder` the resolved directory to search in, `name` the one file in it or "".

    `withheld` is what must not be shown of a folder; a file was judged with the call.
    """

    path: str
    folder: str
    name: str
    cwd: str
    withheld: Withheld | None = None

    def shown(self, found: str) -> str:
        """A path found relative to `folder`, relative to the working directory where it lies below that."""
        path = self.path if self.name else posixpath.join(self.path, found)
        below = self.cwd.rstrip("/") + "/"
        return path[len(below) :] if path.startswith(below) else path

    def withholds(self, found: str) -> bool:
        """Whether a path found relative to `folder` is one that the permission rules keep from being read."""
        return self.withheld is not None and self.withheld.covers(found)

    @property
    def withheld_note(self) -> str | None:
        """That files are left out. It says the same whether there are any: else a search would tell what is in them."""
        if self.withheld is None:
            return None
        return f"Left out, if there are any: files that {', '.join(self.withheld.rules)} keeps from being read."


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
        return SearchRoot(spelled, info.resolved, "", ctx.cwd, ctx.withheld(spelled, info.resolved))
    if info.kind is FileKind.FILE:
        folder, name = posixpath.split(info.resolved)
        return SearchRoot(spelled, folder, name, ctx.cwd)
    raise ToolError(f"{spelled} is neither a file nor a directory; it was not opened.")
