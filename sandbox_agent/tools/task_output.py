"""TaskOutput: what a job has printed so far, from any byte on, and how it is with it; waits for its end if asked to."""

from __future__ import annotations

import codecs
from contextlib import nullcontext
from typing import Annotated, NamedTuple

import anyio
from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import LIVE_MAX_BYTES
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.jobs import Job, JobDesk, JobKind
from sandbox_agent.types import JsonObject, Subject, ToolResult

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 600_000
MAX_OFFSET = 1 << 40
"""Beyond what any file of a job has; larger numbers are not for every shell."""

SHOWN_BYTES = 30_000
"""Of the output, in one answer."""


class TaskOutputInput(ToolInput):
    """See prompts/tools/task_output.md."""

    task_id: str = Field(description="Of the job.")
    block: bool = Field(default=True, description="Wait for its end.")
    timeout: Annotated[float, Field(ge=0)] = Field(
        default=DEFAULT_TIMEOUT_MS, description=f"How long to wait, in milliseconds; {MAX_TIMEOUT_MS} most."
    )
    offset: Annotated[int, Field(ge=0)] | None = Field(default=None, description="First byte of the output to show.")


class Shown(NamedTuple):
    """A piece of output for the model: the text, where it begins and ends in the output, and how much there is."""

    text: str
    start: int
    end: int
    size_bytes: int


def desk_of(ctx: ToolContext) -> JobDesk:
    """The calling agent's jobs.

    Raises:
        ToolError: there are none where this runs.
    """
    if ctx.jobs is None:
        raise ToolError("Nothing runs in the background here.")
    return ctx.jobs


async def run(value: TaskOutputInput, ctx: ToolContext) -> ToolResult:
    """Wait if asked to, and show the output.

    Raises:
        ToolError: the agent has no such job, or its output cannot be read.
    """
    job = desk_of(ctx).get(value.task_id)
    with job.watched():
        if value.block and job.running:
            async with ctx.agents.waiting() if ctx.agents is not None else nullcontext():
                with anyio.move_on_after(min(value.timeout, MAX_TIMEOUT_MS) / 1000):
                    await job.done.wait()
        shown = await show(job, value.offset)
        meta: JsonObject = {
            "job_id": job.id,
            "state": job.state.value,
            "exit_code": job.exit_code,
            "offset": shown.end,
            "output_bytes": shown.size_bytes,
        }
        return ToolResult(f"{shown.text}\n{_about(job, shown)}".lstrip("\n"), meta=meta)


async def show(job: Job, offset: int | None) -> Shown:
    """The output from a byte on, as much as is shown at once; from None: all of it, or its end.

    Raises:
        ToolError: it cannot be read.
    """
    ended = not job.running
    try:
        found = await job.read(min(offset or 0, MAX_OFFSET), SHOWN_BYTES)
        if offset is None and found.size_bytes > SHOWN_BYTES:
            found = await job.read(found.size_bytes - SHOWN_BYTES, SHOWN_BYTES)
    except OSError as exc:
        raise ToolError(f"The output of {job.id} cannot be read: {exc.strerror or exc}.") from exc
    if ended and not found.size_bytes and job.tail:
        return Shown(job.tail, 0, 0, 0)  # its file had no room, or is gone
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at_end = ended and found.offset + len(found.data) >= found.size_bytes
    text = decoder.decode(found.data, final=at_end)
    kept_back = 0 if at_end else len(decoder.getstate()[0])  # a character that has come in part
    start = min(found.offset, found.size_bytes)
    return Shown(text.rstrip("\n"), start, start + len(found.data) - kept_back, found.size_bytes)


def state_line(job: Job) -> str:
    """How it is with a job, for the model."""
    if job.running:
        return f"{job.id} is still running, for {job.duration_s:.1f} s now"
    return f"{job.id} {job.ended_words()}, after {job.duration_s:.1f} s"


def _about(job: Job, shown: Shown) -> str:
    lines = [f"[{state_line(job)}.]"]
    if job.kind is JobKind.AGENT:
        return lines[0]
    if not shown.size_bytes:
        nothing = "It has printed nothing" + (" so far." if job.running else ".")
        lines.append(f"[{'The end of its output: the whole is not there.' if shown.text else nothing}]")
    elif shown.start == shown.end:
        lines.append(f"[There is nothing from byte {shown.start:,} on: the output has {shown.size_bytes:,} bytes.]")
    elif (shown.start, shown.end) != (0, shown.size_bytes):
        lines.append(f"[These are bytes {shown.start:,} to {shown.end:,} of {shown.size_bytes:,}.]")
    full = job.running and shown.size_bytes >= LIVE_MAX_BYTES
    if shown.end < shown.size_bytes or (job.running and not full):
        lines.append(f"[offset {shown.end} goes on from here.]")
    if full:
        lines.append("[Its file is full: of what it prints now only the end will be kept, and be there when it ends.]")
    if job.where() and (shown.size_bytes > SHOWN_BYTES or job.file_bytes != job.output_bytes):
        lines.append(f"[{job.where()}]")
    return "\n".join(lines)


def _subject(value: TaskOutputInput, ctx: ToolContext) -> Subject:
    return Subject(summary=value.task_id)


TOOL = build_tool(
    name="TaskOutput",
    description=prompt("tools/task_output"),
    input_model=TaskOutputInput,
    run=run,
    read_only=True,
    parallel_safe=True,
    subject=_subject,
    # It bounds itself.
    timeout_s=None,
)
