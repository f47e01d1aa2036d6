"""How the file tools reach a file: where it leads, whether it is masked, and every fault as a text for the model."""

from __future__ import annotations

import errno
import posixpath
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from sandbox_agent.errors import ToolError
from sandbox_agent.sandboxes.base import (
    FileContent,
    FileTooLargeError,
    NotRegularFileError,
    PathChangedError,
)
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.validation import near_names

_LISTING_TIMEOUT_S = 5.0
_LISTING_BYTES = 1024 * 1024
_MAX_PATH_BYTES = 4095
"""What the kernel takes."""


def _usable_path(path: str) -> str:
    if not path or "\0" in path or len(path.encode("utf-8", "replace")) > _MAX_PATH_BYTES:
        raise ValueError(f"a path: not empty, without NUL characters, at most {_MAX_PATH_BYTES:,} bytes")
    return path


PathText = Annotated[str, AfterValidator(_usable_path)]
"""The type of every path field."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file a tool call names: `path` as the model is shown it, `resolved` with links followed."""

    path: str
    resolved: str


async def locate(ctx: ToolContext, file_path: str) -> Place:
    """Where `file_path` leads: what the gate saw if it looked, else asked now.

    Raises:
        ToolError: it is masked.
    """
    path = ctx.container_path(file_path)
    resolved = ctx.resolved.get(path)
    if resolved is None:
        [info] = await ctx.sandbox.resolve([path])
        resolved = info.resolved
    rule = ctx.masked(resolved)
    if rule is not None:
        raise ToolError(f"{path} is masked by rule {rule}: its content is kept out of this session. Go on without it.")
    return Place(path, resolved)


async def read(ctx: ToolContext, place: Place, *, limit_bytes: int | None = None) -> FileContent:
    """The file's bytes from its start.

    Raises:
        ToolError: it cannot be had; the text says why, and for a missing file names its nearest neighbours.
    """
    try:
        return await ctx.sandbox.read_file(place.path, limit_bytes=limit_bytes, resolved=place.resolved)
    except FileNotFoundError as exc:
        raise ToolError(await missing(ctx, place.path)) from exc
    except OSError as exc:
        raise ToolError(explain(exc, place.path)) from exc


def explain(exc: OSError, path: str) -> str:
    """What went wrong with `path`, for the model."""
    match exc:
        case FileNotFoundError():
            return f"{path} does not exist."
        case IsADirectoryError():
            return f"{path} is a directory, not a file. List it with Glob, or with ls in Bash."
        case NotADirectoryError():
            return f"{path} cannot exist: a part of it is a file, not a directory."
        case PermissionError():
            return f"{path}: permission denied to the tools' user."
        case NotRegularFileError():
            return f"{path} is a FIFO, socket or device, not a regular file. It was not opened."
        case FileTooLargeError():
            return f"{path} is too large for this tool: {exc.strerror or exc}. Work on it with Bash."
        case PathChangedError():
            return f"{path} leads to another place now than when this call was judged, so nothing was done. Try again."
        case OSError(errno=errno.ENOSPC) | OSError(errno=errno.EDQUOT):
            return f"{path}: the disk limit of this session is reached, nothing was written. Remove something first."
        case OSError(errno=errno.EROFS):
            return f"{path} lies on a read-only part of the container. Write under the workspace or /tmp."
        case _:
            return f"{path}: {exc.strerror or exc}."


async def missing(ctx: ToolContext, path: str) -> str:
    """The text for a file that is not there: where the call stands and which names are near."""
    text = f"{path} does not exist. The working directory is {ctx.cwd}."
    folder, name = posixpath.split(path)
    near = near_names(name, await names_in(ctx, folder or "/"))
    if near:
        text += f" Did you mean {' or '.join(posixpath.join(folder, found) for found in near)}?"
    return text


async def names_in(ctx: ToolContext, folder: str) -> list[str]:
    """The names in a directory, [] if it cannot be listed: they only serve to help."""
    argv = ["find", folder, "-mindepth", "1", "-maxdepth", "1", "-printf", r"%f\0"]
    try:
        listed = await ctx.sandbox.exec(argv, cwd="/", timeout_s=_LISTING_TIMEOUT_S, max_output_bytes=_LISTING_BYTES)
    except ValueError:
        return []
    names = listed.stdout.decode("utf-8", "replace").split("\0")
    return [name for name in names if name] if listed.exit_code == 0 and not listed.truncated else []
