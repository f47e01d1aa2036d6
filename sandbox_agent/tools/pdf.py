"""Pages of a PDF, cut out in the container: the host never parses a document."""

from __future__ import annotations

import re
from typing import NamedTuple

from sandbox_agent.errors import ToolError
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.file_access import Place
from sandbox_agent.tools.pictures import MAX_PDF_BYTES

MAX_PAGES = 20
_TIMEOUT_S = 60.0
_MISSING = 127
_WARNINGS = 3
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?\Z")


class PageRange(NamedTuple):
    first: int
    last: int


def page_range(text: str) -> PageRange:
    """ "3" or "1-5".

    Raises:
        ToolError: it is something else, or more than `MAX_PAGES`.
    """
    found = _RANGE.match(text)
    if found is None:
        raise ToolError(f'pages: expected one page or a range such as "3" or "1-5"; got {text!r}.')
    first = int(found[1])
    last = int(found[2] or first)
    if not 1 <= first <= last:
        raise ToolError(f"pages: {text!r} is not a range; pages count from 1.")
    if last - first + 1 > MAX_PAGES:
        raise ToolError(f"pages: {last - first + 1} pages asked for, at most {MAX_PAGES} at once.")
    return PageRange(first, last)


async def cut_pages(ctx: ToolContext, place: Place, pages: str) -> bytes:
    """A PDF of these pages only.

    Raises:
        ToolError: the range is wrong, the image has no qpdf, or qpdf cannot cut the file.
    """
    wanted = page_range(pages)
    argv = ["qpdf", place.resolved, "--pages", ".", f"{wanted.first}-{wanted.last}", "--", "-"]
    cut = await ctx.sandbox.exec(argv, timeout_s=_TIMEOUT_S, max_output_bytes=2 * MAX_PDF_BYTES)
    if cut.exit_code == _MISSING:
        raise ToolError(
            "Pages of a PDF are cut with qpdf, and this image does not have it. Read the PDF without pages, or use an "
            "image with qpdf."
        )
    if cut.exit_code not in (0, _WARNINGS) or cut.timed_out or cut.truncated:
        said = cut.stderr.decode("utf-8", "replace").strip()[:500]
        raise ToolError(f"{place.path}: pages {pages} could not be cut out. qpdf said: {said or '(nothing)'}")
    return cut.stdout
