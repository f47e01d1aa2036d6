"""What a shell left behind, read apart: its report of where it ended, and as much output as the model is shown."""

from __future__ import annotations

import codecs
import posixpath
from dataclasses import dataclass

from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.tools.base import ToolContext

INLINE_CHARS = 30_000
"""Shown to the model, half from the head and half from the tail."""

_PATH_MAX = 4096
"""Of the kernel, with the NUL at the end."""

_CONTINUATION = bytes(range(0x80, 0xC0))
"""What a UTF-8 character goes on with: a tail that begins so was cut inside a character."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the shell said at exit, nothing if it could not (killed, or the command set its own EXIT trap) or if more
    than one shell spoke: a child that a signal ends right after its fork still has the trap of its parent.

    `stages` are the exit codes of the last pipeline; `cwd` is "" if the directory is gone; `strays` is what else came
    on the shell's own stderr, which is not the command's.
    """

    stages: tuple[int, ...] = ()
    cwd: str | None = None
    strays: bytes = b""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Output for the model. `file` holds all of it, in the container, when `cut`."""

    text: str
    cut: bool
    is_utf8: bool
    file: str | None = None


def report_of(ended: ExecResult, nonce: str) -> Report:
    """Parse the report; what does not look like one is a stray, and a directory that is not UTF-8 is not taken over.

    A command can forge it, so a directory is taken over only as the shell writes one: with "..", a relative path of the
    next command would lead elsewhere than where it is judged.
    """
    mark = nonce.encode("ascii")
    strays, found, report = ended.stderr.partition(mark + b" ")
    if not found:
        return Report(strays=ended.stderr)
    codes, found, cwd = (mark + b" " + report).partition(mark + b"=")
    stages = [word for word in codes.split() if word != mark]
    if not found or mark in cwd or not all(word.isdigit() for word in stages):
        return Report(strays=strays)
    try:
        path: str | None = cwd.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError:
        path = None
    if path and not _is_plain(path):
        path = None
    return Report(tuple(int(word) for word in stages), path, strays)


def _is_plain(path: str) -> bool:
    size = len(path.encode("utf-8"))
    return path[:1] == "/" != path[1:2] and "\0" not in path and posixpath.normpath(path) == path and size < _PATH_MAX


async def excerpt(ctx: ToolContext, ended: ExecResult, report: Report, file_path: str) -> Excerpt:
    """The output, or its head and tail with the whole in `file_path` in the container."""
    if ended.truncated:
        half = len(ended.stdout) // 2
        raw_head, raw_tail = ended.stdout[:half], ended.stdout[half:].lstrip(_CONTINUATION)
        head, tail, is_utf8 = _decode(raw_head), _decode(raw_tail), _is_utf8(raw_head) and _is_utf8(raw_tail)
        file = ended.spill_path
        kept_bytes = ended.spill_bytes
    else:
        between = b"" if ended.stdout.endswith(b"\n") or not ended.stdout else b"\n"
        head = tail = _decode(ended.stdout + between + report.strays).rstrip("\n")
        is_utf8 = _is_utf8(ended.stdout)
        if len(head) <= INLINE_CHARS:
            return Excerpt(head, False, is_utf8)
        file = await _keep(ctx, file_path, ended.stdout)
        kept_bytes = len(ended.stdout)
    where = "There was no room to keep all of it."
    if file is not None:
        part = "All of it is" if kept_bytes >= ended.stdout_bytes else f"The first {kept_bytes:,} bytes of it are"
        where = f"{part} in {file}: use Read with offset and limit, or Grep, on it."
    mark = f"[... {ended.stdout_bytes:,} bytes of output in all; the middle is not shown. {where} ...]"
    text = f"{head[: INLINE_CHARS // 2]}\n{mark}\n{tail[-(INLINE_CHARS // 2) :]}"
    return Excerpt(text.rstrip("\n"), True, is_utf8, file)


async def _keep(ctx: ToolContext, path: str, data: bytes) -> str | None:
    """Write output that the host holds whole to a file; None if that fails, which must not lose the result itself."""
    try:
        await ctx.sandbox.replace_file(path, data, expected_sha256=None)
    except OSError:
        return None
    return path


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8, a last character that is cut off aside."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True
